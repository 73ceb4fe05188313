package storetest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"toolguard.dev/toolguard"
)

// state is what a Memory holds durably.
type state struct {
	seq        uint64
	operations map[string]*kept
	lanes      map[scoped][]slot // latest first
	calls      map[scoped]index
	bodies     map[string]body
	documents  map[string]document
	fences     map[string]map[string]uint64 // fence → operation key → last write
	tokens     map[string]bool              // of writes without an operation
	events     []toolguard.Event
	chains     map[string]*toolguard.Event // the last event of each
}

type scoped struct{ tenant, name string }

// kept is one stored operation.
type kept struct {
	*toolguard.Operation
	created            uint64
	open, holding, due bool
	queue              string
}

// slot is one dispatch in a lane.
type slot struct {
	key string
	seq uint64
}

type index struct {
	key   string
	until time.Time
}

type body struct {
	body  toolguard.Body
	until time.Time
}

type document struct {
	data []byte
	rev  uint64
}

func newState() *state {
	return &state{
		operations: map[string]*kept{}, lanes: map[scoped][]slot{}, calls: map[scoped]index{}, bodies: map[string]body{},
		documents: map[string]document{}, fences: map[string]map[string]uint64{}, tokens: map[string]bool{}, chains: map[string]*toolguard.Event{},
	}
}

// clone copies what apply changes in place; records, bodies and documents are only ever replaced.
func (s *state) clone() *state {
	c := *s
	c.operations, c.lanes, c.calls = maps.Clone(s.operations), maps.Clone(s.lanes), maps.Clone(s.calls)
	c.bodies, c.documents, c.tokens = maps.Clone(s.bodies), maps.Clone(s.documents), maps.Clone(s.tokens)
	c.events, c.chains = slices.Clone(s.events), maps.Clone(s.chains)
	c.fences = map[string]map[string]uint64{}
	for name, f := range s.fences {
		c.fences[name] = maps.Clone(f)
	}
	return &c
}

// apply applies w whole, or not at all.
func (s *state) apply(w *toolguard.Write) error {
	op := w.Operation
	if op != nil {
		old := s.operations[op.Key]
		if old != nil && w.Token != "" && old.Token == w.Token {
			op.Rev, op.Dispatched, op.Token = old.Rev, old.Dispatched, old.Token
			return nil
		}
		if old == nil && op.Rev != 0 || old != nil && op.Rev != old.Rev {
			return toolguard.ErrConflict
		}
	} else if w.Token != "" && s.tokens[w.Token] {
		return nil
	}
	if w.Fence != "" {
		for key, seq := range s.fences[w.Fence] {
			if seq > w.FenceSince && (op == nil || key != op.Key) {
				return toolguard.ErrConflict
			}
		}
	}
	if w.Document != "" && s.documents[w.Document].rev != w.DocumentRev {
		return toolguard.ErrConflict
	}
	events, err := s.link(w.Events)
	if err != nil {
		return err
	}

	// Each event has a sequence of its own; a write has that of its last event.
	s.seq += uint64(max(1, len(events)))
	for i := range events {
		events[i].Seq = s.seq - uint64(len(events)-1-i)
		last := cloneEvent(&events[i])
		s.events, s.chains[last.Chain] = append(s.events, last), &last
	}
	copy(w.Events, events)
	key := ""
	if op != nil {
		key = op.Key
		s.put(w)
	} else if w.Token != "" {
		s.tokens[w.Token] = true
	}
	if w.Fence != "" {
		if s.fences[w.Fence] == nil {
			s.fences[w.Fence] = map[string]uint64{}
		}
		s.fences[w.Fence][key] = s.seq
	}
	if w.Document != "" {
		s.documents[w.Document] = document{bytes.Clone(w.Data), s.seq}
	}
	return nil
}

// put stores w's operation and whatever is found by it.
func (s *state) put(w *toolguard.Write) {
	op := w.Operation
	k := &kept{created: s.seq, open: w.Open, holding: w.Open && w.Holding, due: w.Open && w.Due, queue: w.Queue}
	op.Dispatched = 0
	if old := s.operations[op.Key]; old != nil {
		k.created, op.Dispatched = old.created, old.Dispatched
	}
	op.Rev, op.Token = s.seq, w.Token
	if w.Dispatch {
		op.Dispatched = s.seq
		for _, name := range w.Lanes {
			lane := scoped{op.Facts.Tenant, name}
			rest := slices.DeleteFunc(slices.Clone(s.lanes[lane]), func(d slot) bool { return d.key == op.Key })
			s.lanes[lane] = append([]slot{{op.Key, s.seq}}, rest[:min(len(rest), laneLength-1)]...)
		}
	}
	k.Operation = cloneOperation(op)
	s.operations[op.Key] = k
	if w.Call != "" {
		s.calls[scoped{op.Facts.Tenant, w.Call}] = index{op.Key, w.CallUntil}
	}
	if w.Body != nil {
		s.bodies[op.Key] = body{cloneBody(*w.Body), w.BodyUntil}
	}
}

const laneLength = 16

// link returns copies of events, placed in their chains.
func (s *state) link(events []toolguard.Event) ([]toolguard.Event, error) {
	events = slices.Clone(events)
	ends := map[string]*toolguard.Event{}
	for i := range events {
		e := &events[i]
		end := cmp.Or(ends[e.Tenant], s.chains[e.Tenant], &toolguard.Event{})
		if err := e.Link(e.Tenant, end.ChainSeq+1, end.Hash); err != nil {
			return nil, err
		}
		ends[e.Tenant] = e
	}
	return events, nil
}

func cloneOperation(op *toolguard.Operation) *toolguard.Operation {
	c := new(toolguard.Operation)
	remake(op, c)
	c.Material = bytes.Clone(op.Material) // byte for byte
	return c
}

func cloneEvent(e *toolguard.Event) toolguard.Event {
	c := toolguard.Event{Seq: e.Seq}
	remake(e, &c)
	return c
}

func cloneBody(b toolguard.Body) toolguard.Body {
	return toolguard.Body{Arguments: bytes.Clone(b.Arguments), Result: bytes.Clone(b.Result), Sealed: bytes.Clone(b.Sealed)}
}

func cloneWrite(w *toolguard.Write) *toolguard.Write {
	c := *w
	if w.Operation != nil {
		c.Operation = cloneOperation(w.Operation)
	}
	if w.Body != nil {
		b := cloneBody(*w.Body)
		c.Body = &b
	}
	c.Lanes, c.Data, c.Events = slices.Clone(w.Lanes), bytes.Clone(w.Data), nil
	for i := range w.Events {
		c.Events = append(c.Events, cloneEvent(&w.Events[i]))
	}
	return &c
}

// remake makes to what a store on disk would give back for from.
func remake(from, to any) {
	text, err := json.Marshal(from)
	if err == nil {
		d := json.NewDecoder(bytes.NewReader(text))
		d.UseNumber()
		err = d.Decode(to)
	}
	if err != nil {
		panic(fmt.Sprintf("storetest: %v", err))
	}
}
