package badgerstore

// openSet holds the open operations in memory, so that asking for them costs no scan: by place (tenant, workflow,
// action) and, within it, by subject.
type openSet struct {
	byKey  map[string]*opened
	places map[place]*shelf
}

type place struct{ tenant, workflow, action string }

type shelf struct {
	subjects map[string]*opened // the first of those with a subject
	holding  map[*opened]struct{}
	due      map[*opened]struct{}
	size     int
}

// opened is a listing, chained to others of its subject.
type opened struct {
	listing
	next, prev *opened
}

func newOpenSet() openSet {
	return openSet{byKey: map[string]*opened{}, places: map[place]*shelf{}}
}

// add adds an operation, or replaces it.
func (s *openSet) add(l *listing) {
	p := place{l.tenant, l.workflow, l.action}
	if o := s.byKey[l.key]; o != nil {
		if o.same(l) {
			s.places[p].mark(o, l)
			o.sheet = l.sheet
			return
		}
		s.remove(l.key)
	}
	sh := s.places[p]
	if sh == nil {
		sh = &shelf{subjects: map[string]*opened{}, holding: map[*opened]struct{}{}, due: map[*opened]struct{}{}}
		s.places[p] = sh
	}
	o := &opened{listing: *l, next: sh.subjects[l.subject]}
	if o.next != nil {
		o.next.prev = o
	}
	sh.subjects[l.subject] = o
	sh.mark(o, l)
	sh.size++
	s.byKey[l.key] = o
}

// mark notes of an operation on the shelf what l says of it.
func (sh *shelf) mark(o *opened, l *listing) {
	o.holding, o.due = l.holding, l.due
	include(sh.holding, o, o.holding)
	include(sh.due, o, o.due)
}

func include(set map[*opened]struct{}, o *opened, in bool) {
	if in {
		set[o] = struct{}{}
	} else {
		delete(set, o)
	}
}

func (s *openSet) remove(key string) {
	o := s.byKey[key]
	if o == nil {
		return
	}
	delete(s.byKey, key)
	p := place{o.tenant, o.workflow, o.action}
	sh := s.places[p]
	switch {
	case o.prev != nil:
		o.prev.next = o.next
	case o.next != nil:
		sh.subjects[o.subject] = o.next
	default:
		delete(sh.subjects, o.subject)
	}
	if o.next != nil {
		o.next.prev = o.prev
	}
	delete(sh.holding, o)
	delete(sh.due, o)
	if sh.size--; sh.size == 0 {
		delete(s.places, p)
	}
}

// narrow selects open operations; "" stands for any.
type narrow struct {
	place
	subject string
	holding bool
	due     bool
	limit   int // 0: none
}

// keys returns the keys of the operations that n selects.
func (s *openSet) keys(n *narrow) []string {
	var keys []string
	if n.tenant != "" && n.workflow != "" && n.action != "" {
		if sh := s.places[n.place]; sh != nil {
			keys = sh.keys(n, keys)
		}
		return keys
	}
	for p, sh := range s.places {
		if (n.tenant == "" || n.tenant == p.tenant) && (n.workflow == "" || n.workflow == p.workflow) && (n.action == "" || n.action == p.action) {
			keys = sh.keys(n, keys)
		}
	}
	return keys
}

func (sh *shelf) keys(n *narrow, keys []string) []string {
	wanted := func() bool { return n.limit == 0 || len(keys) < n.limit }
	take := func(o *opened) {
		if wanted() && (o.holding || !n.holding) && (o.due || !n.due) {
			keys = append(keys, o.key)
		}
	}
	chained := func(o *opened) {
		for ; o != nil && wanted(); o = o.next {
			take(o)
		}
	}
	switch {
	case n.subject != "":
		chained(sh.subjects[n.subject])
	case n.due:
		for o := range sh.due {
			take(o)
		}
	case n.holding:
		for o := range sh.holding {
			take(o)
		}
	default:
		for _, o := range sh.subjects {
			chained(o)
		}
	}
	return keys
}
