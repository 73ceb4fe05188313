package e2e_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// stubMain is a stdio MCP server of its own with one tool that answers 700 bytes, and writes its text into a file if
// there is one: real servers take longer than what is to be measured.
func stubMain(path string) int {
	var notes io.Writer = io.Discard
	if path != "-" {
		file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			os.Stderr.WriteString("stub: " + err.Error() + "\n")
			return 1
		}
		defer file.Close()
		notes = file
	}
	lines := bufio.NewReaderSize(os.Stdin, 64<<10)
	out := bufio.NewWriter(os.Stdout)
	text, _ := json.Marshal(strings.Repeat("r", 700))
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return 0
		}
		var m struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
			Params struct {
				Arguments struct {
					Text string `json:"text"`
				} `json:"arguments"`
			} `json:"params"`
		}
		if json.Unmarshal(line, &m) != nil || m.ID == nil {
			continue
		}
		var result string
		switch m.Method {
		case "initialize":
			result = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"stub","version":"1"}}`
		case "tools/list":
			result = `{"tools":[{"name":"note","description":"Notes a text.","inputSchema":{"type":"object","properties":{"text":{"type":"string"}},"required":["text"]}}]}`
		case "tools/call":
			if _, err := fmt.Fprintln(notes, m.Params.Arguments.Text); err != nil {
				return 1
			}
			result = `{"content":[{"type":"text","text":` + string(text) + `}]}`
		default:
			result = `{}`
		}
		fmt.Fprintf(out, `{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n", m.ID, result)
		if out.Flush() != nil {
			return 0
		}
	}
}

// BenchmarkStdioAdded compares one fresh guarded call with the same call made directly, in turns in one run, and with
// two durable writes of the same size beside the ledger: at most 1.0 ms may be added at the median besides those.
func BenchmarkStdioAdded(b *testing.B) {
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	b.Run("stub", func(b *testing.B) {
		added(b, upstream{name: "stub", argv: []string{self, "stub", "-"}}, "", "note", func(i int) args {
			return args{"text": fmt.Sprintf("%s%d", strings.Repeat("a", 280), i)}
		})
	})
	b.Run("everything", func(b *testing.B) {
		added(b, everything(b), "tools: {everything/echo: {effect: write}}", "echo", func(i int) args {
			return args{"message": fmt.Sprintf("%s%d", strings.Repeat("a", 280), i)}
		})
	})
}

func added(b *testing.B, up upstream, settings, tool string, arguments func(int) args) {
	g := serve(b, up, settings)
	guarded, own := g.start(b, legacy), direct(b, up)
	file, err := os.Create(filepath.Join(g.data, "beside"))
	if err != nil {
		b.Fatal(err)
	}
	defer os.Remove(file.Name())
	defer file.Close()
	record := []byte(strings.Repeat("x", 1000))
	timed := func(do func()) time.Duration {
		start := time.Now()
		do()
		return time.Since(start)
	}
	guarded.list()
	for i := range 20 { // warm up
		guarded.call(tool, arguments(-1-i))
		own.call(tool, arguments(-1-i))
	}
	var with, without, syncs []time.Duration
	i := 0
	for b.Loop() {
		i++
		without = append(without, timed(func() { own.call(tool, arguments(i)) }))
		with = append(with, timed(func() { guarded.call(tool, arguments(i)).is("fresh", "") }))
		syncs = append(syncs, timed(func() {
			for range 2 {
				if _, err := file.Write(record); err != nil {
					b.Fatal(err)
				}
				if err := file.Sync(); err != nil {
					b.Fatal(err)
				}
			}
		}))
	}
	ms := func(d []time.Duration) float64 {
		slices.Sort(d)
		return float64(d[len(d)/2]) / float64(time.Millisecond)
	}
	direct, guardedMS, two := ms(without), ms(with), ms(syncs)
	b.ReportMetric(direct, "direct-ms")
	b.ReportMetric(guardedMS, "guarded-ms")
	b.ReportMetric(guardedMS-direct, "added-ms")
	b.ReportMetric(two, "twosyncs-ms")
	b.ReportMetric(guardedMS-direct-two, "besides-ms")
	b.ReportMetric(0, "ns/op")
	if over := guardedMS - direct - two; over > 1.0 && i >= 200 {
		b.Errorf("%.2f ms added at the median besides two syncs (direct %.2f, guarded %.2f, two syncs %.2f), want at most 1.0",
			over, direct, guardedMS, two)
	}
}
