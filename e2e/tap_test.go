package e2e_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// What a tap does with a call or an answer.
const (
	pass = "pass" // hand it on
	drop = "drop" // lose it
	die  = "die"  // end, and the real server with it
)

type tapConfig struct {
	Socket string            `json:"socket"`
	Argv   []string          `json:"argv"`
	Env    map[string]string `json:"env"`
}

// tapEvent goes from the tap to the test.
type tapEvent struct {
	Seq   int             `json:"seq"`
	Stage string          `json:"stage"` // call, answer, list: the tap waits for a word; note: it does not
	Call  int             `json:"call"`  // answer: seq of its call
	Msg   json.RawMessage `json:"msg"`
}

// tapOrder goes from the test to the tap.
type tapOrder struct {
	Seq    int             `json:"seq"`
	Do     string          `json:"do,omitempty"`
	Msg    json.RawMessage `json:"msg,omitempty"`    // with pass: instead of the message
	Inject json.RawMessage `json:"inject,omitempty"` // to the guard, as if the server had said it
}

// tap is the test's end of all taps that the guard starts for one upstream, one after the other or at once.
type tap struct {
	t    testing.TB
	real upstream
	up   upstream // what the guard is to start

	watch
	live  map[net.Conn]bool
	ever  int // taps started
	calls []*tapCall
	notes []note // what else the guard sent
	holds []*hold
	tools func([]any) []any // if not nil: changes the lists that the guard gets
}

// tapCall is one tools/call that the guard sent.
type tapCall struct {
	name     string
	request  map[string]any // params
	reached  bool           // the real server got it
	answered bool           // the real server answered: it has been executed
	response map[string]any // the real server's whole answer
}

// hold is where the test steps in once.
type hold struct {
	t       testing.TB
	stage   string
	name    string
	reached chan *tapCall
	word    chan string
}

// at waits until a call is held.
func (h *hold) at() *tapCall {
	h.t.Helper()
	return recv(h.t, "a "+h.stage+" of "+h.name+" at the tap", h.reached)
}

// let says what to do with what is held, or will be.
func (h *hold) let(do string) { h.word <- do }

// tapped puts a tap in front of an upstream.
func tapped(t testing.TB, real upstream) *tap {
	t.Helper()
	dir, err := os.MkdirTemp("", "tap") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	tp := &tap{t: t, real: real, live: map[net.Conn]bool{}}
	socket, config := filepath.Join(dir, "s"), filepath.Join(dir, "config.json")
	writeFile(t, config, string(encode(t, tapConfig{Socket: socket, Argv: real.argv, Env: real.env})))
	tp.up = upstream{name: real.name, argv: []string{self, "tap", config}}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			tp.update(func() { tp.live[conn] = true; tp.ever++ })
			go tp.serve(conn)
		}
	}()
	t.Cleanup(func() {
		listener.Close()
		tp.mu.Lock()
		for conn := range tp.live {
			conn.Close()
		}
		tp.mu.Unlock()
		os.RemoveAll(dir)
	})
	return tp
}

func (tp *tap) serve(conn net.Conn) {
	gone := make(chan struct{})
	defer tp.update(func() { delete(tp.live, conn); conn.Close(); close(gone) })
	calls := map[int]*tapCall{}
	var writing sync.Mutex
	lines := bufio.NewReader(conn)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		var e tapEvent
		if err := json.Unmarshal(line, &e); err != nil {
			tp.t.Errorf("the tap says %.200q", line)
			return
		}
		var m struct {
			Method string         `json:"method"`
			Params map[string]any `json:"params"`
		}
		dec := json.NewDecoder(bytes.NewReader(e.Msg))
		dec.UseNumber()
		_ = dec.Decode(&m)
		var call *tapCall
		switch e.Stage {
		case "list":
			response := decode(tp.t, e.Msg).(map[string]any)
			tp.mu.Lock()
			if list, ok := response["result"].(map[string]any); ok && tp.tools != nil {
				list["tools"] = tp.tools(list["tools"].([]any))
			}
			tp.mu.Unlock()
			order := encode(tp.t, tapOrder{Seq: e.Seq, Do: pass, Msg: encode(tp.t, response)})
			writing.Lock()
			_, _ = conn.Write(append(order, '\n'))
			writing.Unlock()
			continue
		case "note":
			tp.update(func() { tp.notes = append(tp.notes, note{m.Method, m.Params}) })
			continue
		case "call":
			name, _ := m.Params["name"].(string)
			call = &tapCall{name: name, request: m.Params}
			calls[e.Seq] = call
			tp.update(func() { tp.calls = append(tp.calls, call) })
		case "answer":
			call = calls[e.Call]
			response := decode(tp.t, e.Msg).(map[string]any)
			tp.update(func() { call.answered, call.response = true, response })
		}
		var held *hold
		tp.update(func() {
			for i, h := range tp.holds {
				if h.stage == e.Stage && h.name == call.name {
					held = h
					tp.holds = append(tp.holds[:i:i], tp.holds[i+1:]...)
					return
				}
			}
		})
		go func() {
			do := pass
			if held != nil {
				held.reached <- call
				select {
				case do = <-held.word:
				case <-gone:
					return
				}
			}
			if e.Stage == "call" && do == pass {
				tp.update(func() { call.reached = true })
			}
			order, _ := json.Marshal(tapOrder{Seq: e.Seq, Do: do})
			writing.Lock()
			defer writing.Unlock()
			_, _ = conn.Write(append(order, '\n'))
		}()
	}
}

func (tp *tap) hold(stage, name string) *hold {
	h := &hold{t: tp.t, stage: stage, name: name, reached: make(chan *tapCall, 1), word: make(chan string, 1)}
	tp.update(func() { tp.holds = append(tp.holds, h) })
	return h
}

// holdCall holds the next call of the tool before the real server gets it.
func (tp *tap) holdCall(name string) *hold { return tp.hold("call", name) }

// holdAnswer holds the next answer of the tool: the real server has executed the call.
func (tp *tap) holdAnswer(name string) *hold { return tp.hold("answer", name) }

// executions counts the calls of a tool that reached the real server.
func (tp *tap) executions(name string) int {
	tp.mu.Lock()
	defer tp.mu.Unlock()
	n := 0
	for _, c := range tp.calls {
		if c.name == name && c.reached {
			n++
		}
	}
	return n
}

// last is the latest call of a tool.
func (tp *tap) last(name string) *tapCall {
	tp.t.Helper()
	tp.mu.Lock()
	defer tp.mu.Unlock()
	for i := len(tp.calls) - 1; i >= 0; i-- {
		if tp.calls[i].name == name {
			return tp.calls[i]
		}
	}
	tp.t.Fatalf("%s never came to the tap", name)
	return nil
}

// executed fails the test unless the tool reached the real server n times.
func (tp *tap) executed(name string, n int) {
	tp.t.Helper()
	if got := tp.executions(name); got != n {
		tp.t.Errorf("%s reached the real server %d times, want %d", name, got, n)
	}
}

// inject makes the guard read a message as if the server had sent it.
func (tp *tap) inject(message any) {
	tp.t.Helper()
	line := append(encode(tp.t, tapOrder{Inject: encode(tp.t, message)}), '\n')
	tp.mu.Lock()
	defer tp.mu.Unlock()
	for conn := range tp.live {
		if _, err := conn.Write(line); err != nil {
			tp.t.Fatal(err)
		}
	}
}

// gone waits until no tap is left.
func (tp *tap) gone() {
	tp.t.Helper()
	tp.until(tp.t, "no child of the server is left", func() bool { return tp.ever > 0 && len(tp.live) == 0 })
}

// tapMain is the tap itself: a stdio proxy that ends when either side ends, or the test does.
func tapMain(path string) int {
	var config tapConfig
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, &config)
	}
	if err != nil {
		os.Stderr.WriteString("tap: " + err.Error() + "\n")
		return 1
	}
	conn, err := net.Dial("unix", config.Socket)
	if err != nil {
		os.Stderr.WriteString("tap: " + err.Error() + "\n")
		return 1
	}
	real := exec.Command(config.Argv[0], config.Argv[1:]...)
	real.Env = environ(config.Env)
	real.Stderr = os.Stderr
	toReal, err := real.StdinPipe()
	if err != nil {
		return 1
	}
	fromReal, err := real.StdoutPipe()
	if err != nil {
		return 1
	}
	if err := real.Start(); err != nil {
		os.Stderr.WriteString("tap: " + err.Error() + "\n")
		return 1
	}
	end := func(code int) {
		_ = real.Process.Kill()
		os.Exit(code)
	}

	var mu sync.Mutex // of all below and of every writer
	seq := 0
	words := map[int]chan tapOrder{}
	calls := map[string]int{}  // id of the guard's tools/call: seq of the call
	lists := map[string]bool{} // ids of its tools/list
	write := func(f interface{ Write([]byte) (int, error) }, line []byte) {
		mu.Lock()
		defer mu.Unlock()
		_, _ = f.Write(append(bytes.TrimRight(line, "\r\n"), '\n'))
	}
	tell := func(stage string, call int, msg []byte) (int, chan tapOrder) {
		mu.Lock()
		seq++
		n, word := seq, make(chan tapOrder, 1)
		words[n] = word
		mu.Unlock()
		line, err := json.Marshal(tapEvent{Seq: n, Stage: stage, Call: call, Msg: bytes.TrimSpace(msg)})
		if err != nil {
			end(1)
		}
		write(conn, line)
		return n, word
	}
	go func() { // the test's word
		lines := bufio.NewReader(conn)
		for {
			line, err := lines.ReadBytes('\n')
			if err != nil {
				end(1)
			}
			var order tapOrder
			if err := json.Unmarshal(line, &order); err != nil {
				end(1)
			}
			if order.Inject != nil {
				write(os.Stdout, order.Inject)
				continue
			}
			mu.Lock()
			word := words[order.Seq]
			mu.Unlock()
			word <- order
		}
	}()
	go func() { // from the guard
		lines := bufio.NewReader(os.Stdin)
		for {
			line, err := lines.ReadBytes('\n')
			if len(bytes.TrimSpace(line)) > 0 {
				var m struct {
					ID     json.RawMessage `json:"id"`
					Method string          `json:"method"`
				}
				_ = json.Unmarshal(line, &m)
				if m.Method != "tools/call" {
					if m.Method == "tools/list" {
						mu.Lock()
						lists[string(m.ID)] = true
						mu.Unlock()
					}
					tell("note", 0, line)
					write(toReal, line)
				} else {
					n, word := tell("call", 0, line)
					mu.Lock()
					calls[string(m.ID)] = n
					mu.Unlock()
					go func() {
						switch (<-word).Do {
						case pass:
							write(toReal, line)
						case die:
							end(1)
						}
					}()
				}
			}
			if err != nil {
				toReal.Close() // the real server decides what EOF means
				return
			}
		}
	}()
	lines := bufio.NewReader(fromReal)
	var answering sync.WaitGroup
	for {
		line, err := lines.ReadBytes('\n')
		if len(bytes.TrimSpace(line)) > 0 {
			var m struct {
				ID     json.RawMessage `json:"id"`
				Method string          `json:"method"`
			}
			_ = json.Unmarshal(line, &m)
			mu.Lock()
			call, known := calls[string(m.ID)]
			listed := lists[string(m.ID)]
			mu.Unlock()
			switch {
			case m.Method != "" || !known && !listed:
				write(os.Stdout, line)
			case listed:
				_, word := tell("list", 0, line)
				write(os.Stdout, (<-word).Msg)
			default:
				_, word := tell("answer", call, line)
				answering.Add(1)
				go func() {
					defer answering.Done()
					switch (<-word).Do {
					case pass:
						write(os.Stdout, line)
					case die:
						end(1)
					}
				}()
			}
		}
		if err != nil {
			break
		}
	}
	answering.Wait()
	_ = real.Wait()
	return 0
}
