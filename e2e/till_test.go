package e2e_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strings"
)

// tillMain is a server on stdio that charges cards and cannot keep them to itself: whatever it does, it repeats the number, in
// its answers, its errors, its log messages and on its stderr. What it charges it writes to file, without the number.
func tillMain(file string) int {
	out := bufio.NewWriter(os.Stdout)
	send := func(m object) {
		m["jsonrpc"] = "2.0"
		line, _ := json.Marshal(m)
		fmt.Fprintf(out, "%s\n", line)
		_ = out.Flush()
	}
	lines := bufio.NewReaderSize(os.Stdin, 64<<10)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return 0
		}
		var r fixtureRequest
		if json.Unmarshal(line, &r) != nil || r.ID == nil {
			continue
		}
		switch r.Method {
		case "initialize":
			send(object{"id": r.ID, "result": object{"protocolVersion": legacy, "capabilities": object{"tools": object{}, "logging": object{}}, "serverInfo": object{"name": "till", "version": "1"}}})
		case "tools/list":
			schema := json.RawMessage(`{"type":"object","properties":{"card":{"type":"string","maxLength":40},"invoice":{"type":"string"},"amount":{"type":"number"},"memo":{"type":"string"},"act":{"type":"string"}}}`)
			var tools []object
			for _, name := range []string{"charge", "charge_big", "charge_checked", "balance", "find_charge"} {
				tools = append(tools, object{"name": name, "inputSchema": schema, "outputSchema": object{"type": "object"}})
			}
			send(object{"id": r.ID, "result": object{"tools": tools}})
		case "tools/call":
			card, _ := r.Params.Arguments["card"].(string)
			fmt.Fprintf(os.Stderr, "%s of card %s (%s)\n", r.Params.Name, card, line)
			send(object{"method": "notifications/message", "params": object{"level": "error", "data": "card " + card}})
			if strings.HasPrefix(r.Params.Name, "charge") {
				f, _ := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
				fmt.Fprintln(f, r.Params.Arguments["invoice"])
				_ = f.Close()
			}
			switch act, _ := r.Params.Arguments["act"].(string); act {
			case "refuse":
				send(object{"id": r.ID, "result": object{"isError": true, "content": []object{text("invalid card " + card)}}})
			case "fail":
				send(object{"id": r.ID, "error": fault{Code: -32000, Message: "card " + card + " timed out", Data: object{"card": card}}})
			case "garble":
				send(object{"id": r.ID, "result": object{"content": card}})
			case "die":
				fmt.Fprintln(os.Stderr, "fatal: card "+card)
				return 1
			case "hang":
			default:
				send(object{"id": r.ID, "result": object{
					"content":           []object{text("charged " + card), text(fmt.Sprintf("%s %s", card[:8], card[8:]))},
					"structuredContent": object{"id": "ch_" + card, "card": object{"number": card, card: 1}},
				}})
			}
		default:
			send(object{"id": r.ID, "result": object{}})
		}
	}
}
