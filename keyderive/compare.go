package keyderive

import "slices"

// Leaves calls f with the pointer and value of each scalar (string, number,
// boolean or null) in v, members in canonical order, until f returns false.
// Empty arrays and objects have none.
func Leaves(v any, f func(pointer string, x any) bool) {
	leaves(nil, v, f)
}

func leaves(at []byte, v any, f func(pointer string, x any) bool) bool {
	switch v := v.(type) {
	case map[string]any:
		for _, name := range appendNames(nil, v) {
			if !leaves(appendToken(at, name), v[name], f) {
				return false
			}
		}
	case []any:
		for i, x := range v {
			if !leaves(appendIndex(at, i), x, f) {
				return false
			}
		}
	default:
		return f(string(at), v)
	}
	return true
}

// Differ returns the pointers, sorted by their bytes and at most limit of
// them, of the places where a and b differ: a member that one of them lacks,
// a scalar that has another value, a value of another kind, an array of
// another length. Inside such a place it does not look further.
func Differ(a, b any, limit int) []string {
	if limit <= 0 {
		return nil
	}
	found := differ(nil, nil, a, b)
	slices.Sort(found)
	return found[:min(limit, len(found))]
}

// differ appends to found the places of difference below at.
func differ(found []string, at []byte, a, b any) []string {
	switch x := a.(type) {
	case map[string]any:
		y, ok := b.(map[string]any)
		if !ok {
			break
		}
		for name, v := range x {
			place := appendToken(at, name)
			if w, ok := y[name]; ok {
				found = differ(found, place, v, w)
			} else {
				found = append(found, string(place))
			}
		}
		for name := range y {
			if _, ok := x[name]; !ok {
				found = append(found, string(appendToken(at, name)))
			}
		}
		return found
	case []any:
		y, ok := b.([]any)
		if !ok || len(x) != len(y) {
			break
		}
		for i := range x {
			found = differ(found, appendIndex(at, i), x[i], y[i])
		}
		return found
	default:
		if equal(a, b) {
			return found
		}
	}
	return append(found, string(at))
}
