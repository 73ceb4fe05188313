package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"toolguard.dev/toolguard"
)

// tellerMain is a bank on stdio: each payment is a line in a file. Behind a gate it reads nothing more once it has listed its tools, until
// somebody lets it: what is sent to it then has partly left, and partly not.
func tellerMain(file, gate string) int {
	in := bufio.NewReader(os.Stdin)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return 0
		}
		var m struct {
			ID     json.RawMessage
			Method string
			Params struct {
				Name      string
				Arguments struct{ Reference string }
				Meta      struct {
					Key string `json:"dev.toolguard/key"`
				} `json:"_meta"`
			}
		}
		if json.Unmarshal(line, &m) != nil || m.ID == nil {
			continue
		}
		result := "{}"
		switch {
		case m.Method == "initialize":
			result = `{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"teller","version":"1"}}`
		case m.Method == "tools/list":
			result = `{"tools":[{"name":"pay","inputSchema":{"type":"object"}},{"name":"find_payment","inputSchema":{"type":"object"}}]}`
		case m.Params.Name == "pay":
			if f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600); err == nil {
				fmt.Fprintln(f, m.Params.Meta.Key)
				_ = f.Close()
			}
			result = `{"content":[{"type":"text","text":"paid"}]}`
		case m.Params.Name == "find_payment":
			text, _ := os.ReadFile(file)
			result = finds(strings.Count(string(text), m.Params.Arguments.Reference))
		}
		fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n", m.ID, result)
		if m.Method == "tools/list" && gate != "" {
			if conn, err := net.Dial("tcp", gate); err == nil {
				_, _ = conn.Read(make([]byte, 1))
				_ = conn.Close()
			}
		}
	}
}

const tellers = `version: 1
mcpServers: {bank: {command: "@FAKE@", env: {TELLER: "@DIR@/paid", TELLER_GATE: "${TELLER_GATE:-}"}}}
context: {tenant: {value: acme}}
tools:
  bank/pay: {effect: write, once_per: [/invoice_id], `

// TestFrozenSender (row 13): a part of a payment has left when its sender is frozen, and the lookup of another process finds nothing. That proves nothing as long as
// the sender may wake: awake, it sends the rest, and that was it. Killed, the absence counts from then on.
func TestFrozenSender(t *testing.T) {
	t.Parallel()
	for settle, wakes := range map[time.Duration]bool{500 * time.Millisecond: true, 3 * time.Second: false} {
		t.Run(map[bool]string{true: "it wakes and sends", false: "it is killed"}[wakes], func(t *testing.T) {
			t.Parallel()
			gate, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer gate.Close()
			c := &branch{desk: newDesk(t)}
			c.staff = c.hire(tellers+strings.Replace(byKey, "500ms", settle.String(), 1)+"}\n", company...)
			c.start() // it owns the ledger
			frozen := c.command("serve", "--no-stdio", "--http", "127.0.0.1:0", "--data", "ledger")
			frozen.Env = append(frozen.Env, "TELLER_GATE="+gate.Addr().String())
			at := c.announce(frozen)
			held, err := gate.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer held.Close()
			order := fmt.Sprintf(`{"invoice_id":"INV-1","memo":%q}`, strings.Repeat("m", 200_000)) // more than a pipe holds
			key := c.event(at, "", "pay", order).Meta.Verdict.Key
			op := c.becomes(key, toolguard.StatusUnknown)
			if err := frozen.Process.Signal(syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			due := op.Attempts[0].Deadline.Add(settle)
			c.until("nothing was found", func() bool {
				op = c.record(key)
				return (op.LookedAt.After(due) || !wakes) && op.happened(toolguard.EventReconciled, "found", "absent") > 1
			})
			if a := op.Attempts[0]; op.Status != toolguard.StatusUnknown || op.Sent != 1 || a.Finished {
				t.Errorf("it is %s, the attempt %+v", op.Status, a)
			}
			died := time.Now()
			if wakes {
				if err := frozen.Process.Signal(syscall.SIGCONT); err != nil {
					t.Fatal(err)
				}
				_, _ = held.Write([]byte{1})
			} else {
				_ = frozen.Process.Kill()
				_ = frozen.Wait()
			}
			op = c.becomes(key, toolguard.StatusSucceeded)
			c.got(c.event(c.at, "", "pay", order), toolguard.Replayed, toolguard.ReasonDone)
			if wakes && op.Sent != 1 || !wakes && (op.Sent != 2 || op.Attempts[1].Started.Before(died.Add(settle))) {
				t.Errorf("died at %v: %+v", died, op.Attempts)
			}
			if text, _ := os.ReadFile(c.dir + "/paid"); len(lines(string(text))) != 1 {
				t.Errorf("paid %s", text)
			}
		})
	}
}
