package evals_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dgraph-io/badger/v4"

	"toolguard.dev/badgerstore"
	"toolguard.dev/keyderive"
	"toolguard.dev/registry"
	"toolguard.dev/toolguard"
)

// BenchmarkGuardedCall measures one guarded call in process (validate, digest, record, a tool that does nothing,
// settle, delivery) against bare Badger with synced writes and a group commit, one key a write and two durable writes
// an operation, in turns within one run. It prints ratios: absolute rates say more about the disk, and on a machine that
// does other work about that. What a call costs the processors and the heap is printed beside them.
//
//	go test ./evals -run ^$ -bench GuardedCall -benchtime 1x
func BenchmarkGuardedCall(b *testing.B) {
	const rounds = 5
	type arm struct {
		name    string
		op      func(n int) error
		rates   map[int][]float64
		latency []float64 // of one caller, median of a round, seconds
		cost    []cost    // with 64 callers
	}
	bare, log, fresh, replay, delivery := newBare(b), newLog(b), newGuarded(b), newGuarded(b), newGuarded(b) // none works for another
	arms := []*arm{
		{name: "bare Badger", op: bare},
		{name: "append-only log", op: log},
		{name: "fresh", op: fresh.call},
		{name: "replay", op: replay.replay},
		{name: "fresh+delivery", op: delivery.deliver},
	}
	for b.Loop() {
		for range rounds {
			for _, a := range arms {
				if a.rates == nil {
					a.rates = map[int][]float64{}
				}
				for _, callers := range []int{1, 64} {
					rate, median, cost := load(b, callers, time.Second, a.op)
					a.rates[callers] = append(a.rates[callers], rate)
					if callers == 1 {
						a.latency = append(a.latency, median)
					} else {
						a.cost = append(a.cost, cost)
					}
				}
			}
		}
	}
	ratio := func(x, y []float64) float64 { return median(x) / median(y) }
	freshCPU, _, _ := medians(arms[2].cost)
	bareCPU, _, _ := medians(arms[0].cost)
	for _, a := range arms {
		cpu, allocs, bytes := medians(a.cost)
		b.Logf("%-16s 1 caller: %7.0f/s, median %6.0f µs   64 callers: %7.0f/s; a call: %4.0f µs of processor, %4.0f allocations, %3.0f KB",
			a.name, median(a.rates[1]), median(a.latency)*1e6, median(a.rates[64]), cpu*1e6, allocs, bytes/1e3)
	}
	var each []string // how much a round differs from another says how quiet the machine is
	for i, rate := range arms[2].rates[64] {
		each = append(each, fmt.Sprintf("%.2f", rate/arms[0].rates[64][i]))
	}
	b.Logf("fresh64/bare of each round: %s", strings.Join(each, " "))
	b.ReportMetric(ratio(arms[2].rates[64], arms[0].rates[64]), "fresh64/bare")
	b.ReportMetric(ratio(arms[2].latency, arms[0].latency), "latency1/bare")
	b.ReportMetric(ratio(arms[3].rates[64], arms[2].rates[64]), "replay64/fresh")
	b.ReportMetric(ratio(arms[2].rates[64], arms[1].rates[64]), "fresh64/log")
	b.ReportMetric(freshCPU/bareCPU, "cpu/bare")
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	return v[len(v)/2]
}

var number atomic.Int64

// cost is what one call takes besides time: seconds of processor, allocations and their bytes.
type cost struct{ cpu, allocs, bytes float64 }

// medians returns the median of each figure.
func medians(costs []cost) (cpu, allocs, bytes float64) {
	var c, a, s []float64
	for _, x := range costs {
		c, a, s = append(c, x.cpu), append(a, x.allocs), append(s, x.bytes)
	}
	return median(c), median(a), median(s)
}

// load has callers make calls for a time, and returns calls a second, the median duration in seconds, and the cost.
func load(b interface{ Error(...any) }, callers int, d time.Duration, op func(n int) error) (rate, mid float64, _ cost) {
	var wg sync.WaitGroup
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	used := processTime()
	times := make([][]float64, callers)
	start := time.Now()
	for i := range callers {
		wg.Go(func() {
			for time.Since(start) < d {
				began := time.Now()
				if err := op(int(number.Add(1))); err != nil {
					b.Error(err)
					return
				}
				times[i] = append(times[i], time.Since(began).Seconds())
			}
		})
	}
	wg.Wait()
	elapsed := time.Since(start).Seconds()
	used = processTime() - used
	runtime.ReadMemStats(&after)
	all := slices.Concat(times...)
	n := float64(len(all))
	return n / elapsed, median(all), cost{used.Seconds() / n, float64(after.Mallocs-before.Mallocs) / n, float64(after.TotalAlloc-before.TotalAlloc) / n}
}

// newBare writes the arguments and then the result, each durably, as one key each.
func newBare(b *testing.B) func(int) error {
	db, err := badger.Open(badger.DefaultOptions(b.TempDir()).WithSyncWrites(true).WithDetectConflicts(false).WithLogger(nil))
	if err != nil {
		b.Fatal(err)
	}
	commit := grouped(b, func(keys []string, values [][]byte) error {
		txn := db.NewTransaction(true)
		defer txn.Discard()
		for i := range keys {
			if err := txn.Set([]byte(keys[i]), values[i]); err != nil {
				return err
			}
		}
		return txn.Commit()
	})
	b.Cleanup(func() { db.Close() })
	return func(n int) error {
		if err := commit(fmt.Sprintf("%d/arguments", n), []byte(argumentsOf(n))); err != nil {
			return err
		}
		return commit(fmt.Sprintf("%d/result", n), resultBytes)
	}
}

// newLog appends the same to a file and syncs it, a group at a time.
func newLog(b *testing.B) func(int) error {
	f, err := os.Create(filepath.Join(b.TempDir(), "log"))
	if err != nil {
		b.Fatal(err)
	}
	commit := grouped(b, func(_ []string, values [][]byte) error {
		if _, err := f.Write(slices.Concat(values...)); err != nil {
			return err
		}
		return f.Sync()
	})
	b.Cleanup(func() { f.Close() })
	return func(n int) error {
		if err := commit("", []byte(argumentsOf(n))); err != nil {
			return err
		}
		return commit("", resultBytes)
	}
}

// grouped commits what waits in one go.
func grouped(b *testing.B, apply func(keys []string, values [][]byte) error) func(string, []byte) error {
	type item struct {
		key   string
		value []byte
		done  chan error
	}
	queue := make(chan item, 1024)
	var committer sync.WaitGroup
	committer.Go(func() {
		for first := range queue {
			group := []item{first}
			for len(group) < 512 && len(queue) > 0 {
				group = append(group, <-queue)
			}
			keys, values := make([]string, len(group)), make([][]byte, len(group))
			for i, it := range group {
				keys[i], values[i] = it.key, it.value
			}
			err := apply(keys, values)
			for _, it := range group {
				it.done <- err
			}
		}
	})
	b.Cleanup(func() { close(queue); committer.Wait() })
	return func(key string, value []byte) error {
		it := item{key, value, make(chan error, 1)}
		queue <- it
		return <-it.done
	}
}

type guarded struct {
	store *badgerstore.Store
	g     *toolguard.Guard
	tool  *toolguard.Tool
}

var (
	padding     = strings.Repeat("monthly fee ", 16)
	resultBytes = []byte(`{"content":[{"type":"text","text":"` + strings.Repeat("paid, thank you ", 38) + `"}],"structuredContent":{"payment_id":"pay_981"}}`)
)

// argumentsOf are 300 bytes of arguments.
func argumentsOf(n int) string {
	return fmt.Sprintf(`{"invoice_id":"INV-%09d","amount":1299.5,"currency":"EUR","urgent":false,"memo":%q}`, n, padding)
}

func newGuarded(b *testing.B) *guarded {
	c, err := openGuarded(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { c.close() })
	for n := range 64 {
		if err := c.call(-n); err != nil {
			b.Fatal(err)
		}
	}
	return c
}

func openGuarded(dir string) (*guarded, error) {
	store, err := badgerstore.Open(dir, &badgerstore.Options{Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		return nil, err
	}
	g, err := toolguard.Open(context.Background(), store, nil)
	if err != nil {
		return nil, err
	}
	entry, err := registry.Compile(registry.Tool{
		Server: "books", Name: "pay_invoice", Effect: registry.Write, EffectSource: "declared",
		InputSchema: []byte(`{"type":"object","required":["invoice_id","amount"],"properties":{"invoice_id":{"type":"string"},"amount":{"type":"number","exclusiveMinimum":0},"currency":{"type":"string","default":"USD"},"urgent":{"type":"boolean","default":false},"memo":{"type":"string"}}}`),
		Policy:      registry.Policy{OncePer: []string{"source_event", "/invoice_id"}, MayDiffer: []string{"/memo"}},
		Handler: func(context.Context, *registry.Dispatch) (registry.Answer, error) {
			return registry.Answer{Result: resultBytes}, nil
		},
	})
	if err != nil {
		return nil, err
	}
	tool, err := g.Register(context.Background(), entry)
	if err != nil {
		return nil, err
	}
	return &guarded{store: store, g: g, tool: tool}, nil
}

func (c *guarded) close() error {
	return errors.Join(c.g.Close(context.Background()), c.store.Close())
}

// deliver is a call whose answer is known to have arrived: one more write, without a sync.
func (c *guarded) deliver(n int) error {
	c.result(n).Delivered()
	return nil
}

func (c *guarded) result(n int) *toolguard.Result {
	return c.g.Do(context.Background(), toolguard.Call{
		Tool: c.tool, Arguments: json.RawMessage(argumentsOf(n)), Facts: keyderive.Facts{SourceEvent: fmt.Sprint("evt ", n)},
	})
}

func (c *guarded) do(n int, want toolguard.Outcome) error {
	r := c.result(n)
	if r.Verdict.Outcome != want {
		return fmt.Errorf("call %d got %s/%s, want %s", n, r.Verdict.Outcome, r.Verdict.Reason, want)
	}
	return nil
}

func (c *guarded) call(n int) error { return c.do(n, toolguard.Fresh) }

// replay asks for one of 64 calls that were made before.
func (c *guarded) replay(n int) error { return c.do(-(n % 64), toolguard.Replayed) }
