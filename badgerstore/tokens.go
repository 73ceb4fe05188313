package badgerstore

// tokens knows the latest tokens of writes without an operation. Whoever sends a write again, because its
// acknowledgement was lost, does so before so many others were taken.
type tokens struct {
	now, old map[string]struct{}
}

const tokensKept = 1 << 14 // twice that, at most

func (t *tokens) has(token string) bool {
	if _, ok := t.now[token]; ok {
		return true
	}
	_, ok := t.old[token]
	return ok
}

func (t *tokens) add(token string) {
	if len(t.now) >= tokensKept {
		t.old, t.now = t.now, nil
	}
	if t.now == nil {
		t.now = map[string]struct{}{}
	}
	t.now[token] = struct{}{}
}

func encodeTokens(all []string) []byte {
	var b []byte
	for _, t := range all {
		b = appendName(b, t)
	}
	return b
}

func decodeTokens(b []byte) ([]string, error) {
	var all []string
	for s := (scanner{rest: b}); len(s.rest) > 0; {
		all = append(all, s.string())
		if s.bad {
			return nil, errDamaged
		}
	}
	return all, nil
}
