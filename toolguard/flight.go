package toolguard

import (
	"encoding/json"
	"sync"
	"sync/atomic"
	"time"

	"toolguard.dev/keyderive"
	"toolguard.dev/registry"
)

// flight is one attempt on its way in this process, and its answer once it is there.
type flight struct {
	attempt   int
	room      string          // where it was decided about
	arguments json.RawMessage // the frozen bytes
	facts     keyderive.Facts
	hide      *registry.Redactor   // the secrets among them; nil: there are none
	call      *Event               // the audit event of the call that started it, but for how it ended; nil: none did
	done      chan struct{}        // closed when the answer is there
	input     chan json.RawMessage // what the tool asked for, from the call that continues; made when it asks
	until     time.Time            // how long that call waits
	out       landing              // set before done is closed
	picture   *Operation           // lookups without the key are asked about it before it is sent; nil: they are not
	sent      atomic.Int64         // when the last byte left, in Unix nanoseconds; 0: that is not known
	foreign   bool                 // another process dispatches it: who waits here is not its business

	mu      sync.Mutex
	op      *Operation       // as last written by this process; nil once its end is being recorded
	owned   bool             // the call that started it waits, and gets its audit event with the settling write
	waiters int              // callers that wait, the owner among them
	asked   *registry.Answer // the tool asked for more input and waits for it
	askedC  chan struct{}    // closed when asked is set; renewed when the input has come
}

// landing is how an attempt ended.
type landing struct {
	op       *Operation // as settled
	answer   registry.Answer
	class    registry.Classification
	recorded bool
	on       bool   // nobody was answered: the call that started it waits for the next attempt
	seq      uint64 // arrival number at the settle: calls that arrived before it waited for this attempt
}

func newFlight(op *Operation, arguments json.RawMessage, call *Event) *flight {
	f := &flight{op: op, room: op.room(), attempt: op.Sent, arguments: arguments, facts: op.Facts, done: make(chan struct{}), askedC: make(chan struct{}), call: call}
	if call != nil {
		f.owned, f.waiters = true, 1
	}
	return f
}

// enter adds a caller that waits.
func (f *flight) enter() {
	f.mu.Lock()
	f.waiters++
	f.mu.Unlock()
}

// leave takes a caller away before the answer came, and returns the operation and whether it was the last. It returns
// nil where the answer is being recorded, so that there is nothing to leave.
func (f *flight) leave(owner bool) (op *Operation, last bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.op == nil {
		return nil, false
	}
	if owner {
		f.owned = false
	}
	f.waiters--
	return f.op.clone(), f.waiters == 0 && !f.foreign
}

// record takes the operation to record the attempt's end in it, and says whether the call that started it waits.
func (f *flight) record() (op *Operation, waits bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	op, f.op = f.op, nil
	return op, f.owned
}

// shown is an answer as a call may see it that did not start the attempt: whole only where both have the same secrets.
func (f *flight) shown(v *visit, a registry.Answer) registry.Answer {
	if f.hide.Same(v.hide) {
		return a
	}
	a.Result = f.hide.JSON(a.Result)
	if a.Error != nil {
		a.Error = &registry.ProtocolError{Code: a.Error.Code, Message: f.hide.Text(a.Error.Message), Data: f.hide.JSON(a.Error.Data)}
	}
	return a
}

// ask offers the tool's question to whoever waits.
func (f *flight) ask(a registry.Answer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked, f.input = &a, make(chan json.RawMessage, 1)
	close(f.askedC)
}

// reply hands the input on, once per question.
func (f *flight) reply(input json.RawMessage) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.asked == nil {
		return false
	}
	f.asked, f.askedC = nil, make(chan struct{})
	f.input <- input
	return true
}

// question returns the channel that says that the tool asked, and what it asked.
func (f *flight) question() (<-chan struct{}, *registry.Answer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.askedC, f.asked
}

// room is where the calls about one subject meet: it serialises their decisions, and keeps the attempts
// that ended while any of them was inside, so that whoever waited for an attempt gets that attempt's answer.
type room struct {
	sync.Mutex // held while one of them decides and records
	name       string
	old, now   *shift // who came before what now keeps had ended, and who came since; old may be nil
}

// shift is those who came into a room one after the other. Once all of the shift before have left, another begins: what
// ended before a shift came is nothing to it, and a busy room would keep it for ever.
type shift struct {
	inside int
	ends   map[string]*flight // attempts that ended before the next shift came, the latest of each operation
}

// pass is somebody's stay in a room.
type pass struct {
	*room
	shift *shift
}

// rooms are all rooms that somebody is in.
type rooms struct {
	mu sync.Mutex
	m  map[string]*room
}

// enter returns the room of that name; leave must follow.
func (r *rooms) enter(name string) pass {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.m[name]
	if m == nil {
		if r.m == nil {
			r.m = map[string]*room{}
		}
		m = &room{name: name, now: &shift{}}
		r.m[name] = m
	}
	m.now.inside++
	return pass{m, m.now}
}

func (r *rooms) leave(p pass) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p.shift.inside--
	if p.old == nil || p.old.inside == 0 {
		if p.old = nil; p.now.inside == 0 {
			delete(r.m, p.name)
		} else if p.now.ends != nil {
			p.old, p.now = p.now, &shift{}
		}
	}
}

// landed keeps a flight for those who are in its room. waits says that the call that started it is one of them: it has the
// flight already.
func (r *rooms) landed(f *flight, waits bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.m[f.room]
	if m == nil || waits && m.old == nil && m.now.inside == 1 {
		return
	}
	if m.now.ends == nil {
		m.now.ends = map[string]*flight{}
	}
	m.now.ends[f.out.op.Key] = f
}

// end returns the latest attempt of an operation that ended while somebody was in the room; nil if none.
func (r *rooms) end(p pass, op *Operation) *flight {
	if op == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if f := p.now.ends[op.Key]; f != nil || p.old == nil {
		return f
	}
	return p.old.ends[op.Key]
}
