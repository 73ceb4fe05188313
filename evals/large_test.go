//go:build unix

package evals_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"toolguard.dev/toolguard"
)

// What the processes of BenchmarkLargeLedger are told.
const (
	envJob    = "EVALS_LARGE_JOB"        // fill, measure
	envLedger = "EVALS_LARGE_LEDGER"     // the ledger's folder
	envSize   = "EVALS_LARGE_OPERATIONS" // how many to store; "": a million
)

// BenchmarkLargeLedger stores a million delivered operations through the guard and then looks at a process that opens
// them: after a kill -9, and after a clean end. It takes minutes and some gigabytes, so it runs only when it is named:
//
//	go test ./evals -run ^$ -bench LargeLedger -benchtime 1x -timeout 1h
func BenchmarkLargeLedger(b *testing.B) {
	if f := os.Args; !strings.Contains(strings.Join(f, " "), "LargeLedger") {
		b.Skip("takes minutes: name it to run it")
	}
	dir := filepath.Join(b.TempDir(), "ledger")
	for b.Loop() {
		filled := large(b, "fill", dir)
		b.Logf("filled: %+v", filled)
		killed := large(b, "measure", dir)
		b.Logf("after kill -9: %+v", killed)
		clean := large(b, "measure", dir)
		b.Logf("after a clean end: %+v", clean)
		b.ReportMetric(clean.OpenSeconds, "open-s")
		b.ReportMetric(killed.OpenSeconds, "recover-s")
		b.ReportMetric(clean.ReadMB, "read-MB")
		b.ReportMetric(killed.OpenMB, "recover-MB")
		b.ReportMetric(clean.Latency, "latency/empty")
		b.ReportMetric(clean.Load, "cost64/empty")
		for what, over := range map[string]bool{
			"opening takes 2 s or more":                                   clean.OpenSeconds >= 2,
			"200 MB or more after a clean open and 20,000 reads":          max(clean.OpenMB, clean.ReadMB) >= 200,
			"400 MB or more while recovering":                             killed.OpenMB >= 400,
			"a call costs more than 1.3 of what it costs in an empty one": max(clean.Latency, clean.Load) > 1.3,
		} {
			if over {
				b.Error(what)
			}
		}
	}
}

// figures are what a process saw of a ledger.
type figures struct {
	Operations  int
	Seconds     float64 // of filling
	OpenSeconds float64
	OpenMB      float64 // RssAnon, the most while it was opened
	ReadMB      float64 // after 20,000 reads
	Read        float64 // microseconds, the median of one
	Latency     float64 // one caller's median, of that in an empty ledger
	Load        float64 // what a call costs among 64 callers, of that in an empty ledger
}

// large runs a job in a process of its own, which a fill ends by killing itself.
func large(b *testing.B, job, dir string) (f figures) {
	b.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), envJob+"="+job, envLedger+"="+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if e := json.Unmarshal(out, &f); e != nil {
		b.Fatalf("%s: %v, %v: %s", job, err, e, out)
	}
	return f
}

func largeJob(job, dir string) error {
	var f figures
	var err error
	switch job {
	case "fill":
		err = f.fill(dir)
	default:
		err = f.measure(dir)
	}
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(f)
	}
	if err == nil && job == "fill" {
		return syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	return err
}

// fill makes and delivers operations, and notes the keys of 20,000 of them beside the ledger.
func (f *figures) fill(dir string) error {
	f.Operations = 1_000_000
	if text := os.Getenv(envSize); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			return err
		}
		f.Operations = n
	}
	c, err := openGuarded(dir)
	if err != nil {
		return err
	}
	noted := make([]string, f.Operations)
	var next atomic.Int64
	var all sync.WaitGroup
	began := time.Now()
	for range 64 {
		all.Go(func() {
			for n := int(next.Add(1)) - 1; n < f.Operations; n = int(next.Add(1)) - 1 {
				r := c.result(n)
				r.Delivered()
				noted[n] = r.Verdict.Key
			}
		})
	}
	all.Wait()
	f.Seconds = time.Since(began).Seconds()
	rand.Shuffle(len(noted), func(i, j int) { noted[i], noted[j] = noted[j], noted[i] })
	return os.WriteFile(dir+".keys", []byte(strings.Join(noted[:min(20_000, len(noted))], "\n")), 0o600)
}

// measure opens the ledger, reads, and compares calls in it with calls in an empty one, in turns.
func (f *figures) measure(dir string) error {
	most := watchMemory()
	began := time.Now()
	c, err := openGuarded(dir)
	if err != nil {
		return err
	}
	f.OpenSeconds = time.Since(began).Seconds()
	f.OpenMB = most()
	keys, err := os.ReadFile(dir + ".keys")
	if err != nil {
		return err
	}
	var reads []float64
	for key := range strings.Lines(string(keys)) {
		began := time.Now()
		key = strings.TrimSpace(key)
		page, err := c.store.Operations(context.Background(), toolguard.Query{Key: key})
		if err != nil || len(page.Operations) != 1 {
			return fmt.Errorf("operation %s: %d, %w", key, len(page.Operations), err)
		}
		if _, err := c.store.Body(context.Background(), key); err != nil {
			return err
		}
		reads = append(reads, time.Since(began).Seconds()*1e6)
	}
	f.Operations, f.Read, f.ReadMB = len(reads), median(reads), anonymous()

	empty, err := openGuarded(filepath.Join(filepath.Dir(dir), fmt.Sprint("empty", os.Getpid())))
	if err != nil {
		return err
	}
	var latency, costs [2][]float64
	for range 7 {
		for i, ledger := range []*guarded{c, empty} {
			call := func(n int) error { return ledger.deliver(1<<40 + n) }
			_, mid, _ := load(ending{}, 1, 500*time.Millisecond, call)
			rate, _, _ := load(ending{}, 64, time.Second, call)
			latency[i], costs[i] = append(latency[i], mid), append(costs[i], 1/rate)
		}
	}
	f.Latency, f.Load = median(latency[0])/median(latency[1]), median(costs[0])/median(costs[1])
	return errors.Join(c.close(), empty.close())
}

// ending ends the process at the first error.
type ending struct{}

func (ending) Error(why ...any) {
	fmt.Fprintln(os.Stderr, why...)
	os.Exit(1)
}

// watchMemory returns a function that tells the most that RssAnon was since.
func watchMemory() func() float64 {
	end, most := make(chan struct{}), make(chan float64)
	go func() {
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		for high := anonymous(); ; high = max(high, anonymous()) {
			select {
			case <-tick.C:
			case <-end:
				most <- high
				return
			}
		}
	}()
	return func() float64 { close(end); return max(<-most, anonymous()) }
}

// anonymous is this process's RssAnon in MB; 0 where it is not told.
func anonymous() float64 {
	status, err := os.Open("/proc/self/status")
	if err != nil {
		return 0
	}
	defer status.Close()
	for lines := bufio.NewScanner(status); lines.Scan(); {
		var kb float64
		if n, _ := fmt.Sscanf(lines.Text(), "RssAnon: %f kB", &kb); n == 1 {
			return kb / 1024
		}
	}
	return 0
}
