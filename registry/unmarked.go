package registry

import (
	"encoding/json"
	"strconv"
	"strings"
	"unicode"
)

// errorOpenings begin a text that says of itself that it is an error, though the answer is not marked as one;
// saysError looks for what they begin with before it goes through them.
var errorOpenings = []string{"failed to ", "failed: ", "failure: ", "could not ", "couldn't ", "couldn’t ", "unable to ",
	"cannot ", "can't ", "can’t ", "an error ", "an unexpected error ", "an unknown error ", "an internal error ",
	"there was an error ", "unexpected error", "unknown error", "internal error", "internal server error", "fatal: ",
	"fatal error", "exception: ", "an exception ", "unhandled exception", "traceback (most recent call last)"}

// saysError tells whether a text begins with the word Error, or with another of the openings.
func saysError(text string) bool {
	text = strings.TrimLeftFunc(text, func(r rune) bool {
		return unicode.IsSpace(r) || strings.ContainsRune("[(<#*>`\"'“‘❌✗✘✖⚠🚫⛔🔴\ufe0f", r)
	})
	if len(text) < 5 {
		return false
	}
	if strings.EqualFold(text[:5], "error") {
		return endsWord(text[5:])
	}
	if !strings.ContainsRune("acefituACEFITU", rune(text[0])) {
		return false // what most texts are
	}
	for _, o := range errorOpenings {
		if len(text) >= len(o) && strings.EqualFold(text[:len(o)], o) {
			return true
		}
	}
	return false
}

// endsWord tells whether a word ends before rest: not with Errors, ErrorBudget, error_id or error-free.
func endsWord(rest string) bool {
	for i, r := range rest {
		if i == 0 && r == '-' {
			continue
		}
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '_'
	}
	return true
}

// jsonError tells whether a text is a JSON object that says of itself that it is an error.
func jsonError(text string) bool {
	text = strings.TrimSpace(text)
	if !strings.HasPrefix(text, "{") || !mayBeError(text) {
		return false
	}
	v, _ := decode([]byte(text))
	return objectError(v)
}

// mayBeError tells, for much less than reading it costs, whether a JSON text may be an object that objectError knows.
func mayBeError(text string) bool {
	text = strings.ToLower(text)
	for _, name := range []string{`error"`, `errors"`, `"success"`, `"ok"`, `"status`} {
		if strings.Contains(text, name) {
			return true
		}
	}
	return false
}

// structuredError tells whether structured content says of itself that it is an error, or, where it has one member
// only, as frameworks wrap what a function returns, whether that does.
func structuredError(v any) bool {
	if objectError(v) {
		return true
	}
	only, _ := onlyMember(v)
	if text, ok := only.(string); ok {
		return saysError(text) || jsonError(text)
	}
	return objectError(only)
}

// onlyMember returns the value of an object that has one member.
func onlyMember(v any) (value any, ok bool) {
	members, _ := v.(map[string]any)
	if len(members) != 1 {
		return nil, false
	}
	for _, value = range members {
	}
	return value, true
}

// objectError tells whether a value is an object that says that it did not work out.
func objectError(v any) bool {
	members, _ := v.(map[string]any)
	for name, v := range members {
		switch strings.ToLower(name) {
		case "error", "errors":
			if tellsError(v) {
				return true
			}
		case "success", "ok":
			if v == false {
				return true
			}
		case "iserror", "is_error":
			if v == true {
				return true
			}
		case "object":
			if v == "error" {
				return true
			}
		case "status", "statuscode", "status_code":
			if tellsFailure(v) {
				return true
			}
		}
	}
	return false
}

// tellsFailure tells whether the value of a member "status" is a word for failure, or HTTP's number of one.
func tellsFailure(v any) bool {
	switch v := v.(type) {
	case string:
		switch strings.ToLower(v) {
		case "error", "failed", "failure", "fail":
			return true
		}
	case json.Number:
		n, err := strconv.Atoi(v.String())
		return err == nil && n >= 400 && n <= 599
	}
	return false
}

// tellsError tells whether the value of a member "error" tells of one: not null, false, 0, "", "none", [], {} or an
// object of such.
func tellsError(v any) bool {
	switch v := v.(type) {
	case bool:
		return v
	case string:
		switch strings.ToLower(strings.TrimSpace(v)) {
		case "", "none", "null", "no", "no error", "no errors", "false", "0", "ok":
			return false
		}
		return true
	case []any:
		return len(v) > 0
	case map[string]any:
		for _, member := range v {
			if tellsError(member) {
				return true
			}
		}
		return false
	case json.Number:
		return strings.ContainsAny(v.String(), "123456789")
	}
	return false
}
