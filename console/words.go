package console

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"strings"
	"time"
	"unicode"

	"toolguard.dev/toolguard"
)

// words are what the templates say things with.
var words = template.FuncMap{
	"plain": plain, "exact": exact, "status": statusOf, "ago": ago, "stamp": stamp, "iso": iso, "short": short, "join": strings.Join,
	"dict": func(pairs ...any) map[string]any {
		m := map[string]any{}
		for i := 0; i+1 < len(pairs); i += 2 {
			m[pairs[i].(string)] = pairs[i+1]
		}
		return m
	},
	"lasts": lasts, "attempt": attemptOf,
}

// badge is a status as people read it. Kind is for its colour, Sign for those who see none.
type badge struct{ Words, Kind, Sign string }

func statusOf(s toolguard.Status) badge {
	switch s {
	case toolguard.StatusAwaitingApproval:
		return badge{"waits for approval", "wait", "?"}
	case toolguard.StatusApproved:
		return badge{"approved, not sent yet", "run", "→"}
	case toolguard.StatusRejected:
		return badge{"rejected", "off", "×"}
	case toolguard.StatusDispatching:
		return badge{"on its way", "run", "→"}
	case toolguard.StatusSucceeded:
		return badge{"done", "good", "✓"}
	case toolguard.StatusFailed:
		return badge{"did not happen", "off", "–"}
	case toolguard.StatusUnknown:
		return badge{"outcome not known yet", "doubt", "?"}
	case toolguard.StatusEscalated:
		return badge{"a person must find out", "bad", "!"}
	case toolguard.StatusAbandoned:
		return badge{"given up", "off", "×"}
	}
	return badge{string(s), "off", "·"}
}

// attemptOf is the state of an attempt as people read it.
func attemptOf(s toolguard.AttemptState) string {
	switch s {
	case toolguard.AttemptOpen:
		return "on its way"
	case toolguard.AttemptUnsent:
		return "never left"
	case toolguard.AttemptRefused:
		return "did not happen"
	case toolguard.AttemptUnknown:
		return "may have happened"
	case toolguard.AttemptSucceeded:
		return "happened"
	}
	return string(s)
}

// plain shows a text of others as it is, but for what would move or hide other text, which is spelled out.
func plain(v any) string {
	s := fmt.Sprint(v)
	if !strings.ContainsFunc(s, odd) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if odd(r) {
			fmt.Fprintf(&b, `\u%04x`, r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

func odd(r rune) bool {
	return r != ' ' && r != '\n' && (unicode.IsControl(r) || !unicode.IsGraphic(r) || unicode.IsSpace(r) && r != '\u00a0' || unicode.Is(unicode.Other_Default_Ignorable_Code_Point, r))
}

// exact shows a JSON text token by token as it is; only the space between tokens is ours.
func exact(text json.RawMessage) string {
	var out bytes.Buffer
	if json.Indent(&out, text, "", "  ") != nil {
		return plain(string(text))
	}
	return plain(out.String())
}

// short is the beginning of a key.
func short(key string) string { return key[:min(8, len(key))] }

func iso(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func stamp(t time.Time) string {
	if t.IsZero() {
		return "–"
	}
	return t.UTC().Format("2 Jan 2006, 15:04:05 UTC")
}

// ago says how long ago, or in how long, something is.
func ago(t, now time.Time) string {
	d := now.Sub(t)
	if d < 0 {
		return "in " + lasts(-d)
	}
	if d < 2*time.Second {
		return "just now"
	}
	return lasts(d) + " ago"
}

// lasts says a duration in its largest unit.
func lasts(d time.Duration) string {
	for _, unit := range []struct {
		of   time.Duration
		name string
	}{{24 * time.Hour, "day"}, {time.Hour, "hour"}, {time.Minute, "minute"}} {
		if n := int(d / unit.of); n == 1 {
			return "1 " + unit.name
		} else if n > 1 {
			return fmt.Sprintf("%d %ss", n, unit.name)
		}
	}
	return fmt.Sprintf("%d seconds", max(0, int(d/time.Second)))
}

// said are the sentences about decisions, by their word in an address.
var said = map[string]string{
	"approved":  "Approved. The server that serves the tool sends it now, once; the agent's next identical call gets the result.",
	"rejected":  "Rejected. The same arguments stay blocked; other ones ask anew.",
	"seen":      "Recorded what you found. It stays as it was decided, and does not wait any more.",
	"applied":   "Recorded: it happened. The next identical call gets the result.",
	"failed":    "Recorded: it did not happen. The next call may send it.",
	"abandoned": "Given up. It stays blocked until somebody has it repeated.",
	"ordered":   "Ordered: the same bytes are sent again, once no earlier attempt can arrive any more.",
	"allowed":   "Allowed: the next call may do it once more.",
}

// sentenceOf says what an error of the ledger comes to.
func sentenceOf(err error) sentence {
	text := func(sentinel error) string {
		s := strings.TrimSuffix(err.Error(), ": "+sentinel.Error())
		return strings.ToUpper(s[:1]) + s[1:] + "."
	}
	switch {
	case errors.Is(err, toolguard.ErrNotFound):
		return sentence{http.StatusNotFound, "There is nothing of that name here, or it is not yours to see."}
	case errors.Is(err, toolguard.ErrForbidden):
		return sentence{http.StatusForbidden, text(toolguard.ErrForbidden)}
	case errors.Is(err, toolguard.ErrTooEarly):
		return sentence{http.StatusConflict, text(toolguard.ErrTooEarly) + " Until then it can only be ordered to be sent again after that moment."}
	case errors.Is(err, toolguard.ErrTransition):
		return sentence{http.StatusConflict, "Nothing was changed. " + text(toolguard.ErrTransition)}
	case errors.Is(err, toolguard.ErrTooLarge):
		return sentence{http.StatusRequestEntityTooLarge, text(toolguard.ErrTooLarge)}
	case errors.Is(err, toolguard.ErrStoreFull), errors.Is(err, toolguard.ErrStoreAway), errors.Is(err, toolguard.ErrStoreBroken), errors.Is(err, toolguard.ErrStoreClosed):
		return sentence{http.StatusServiceUnavailable, "The ledger does not answer now. Whether anything was recorded is not known; look again."}
	}
	return sentence{http.StatusInternalServerError, "This could not be done; the server's log says why."}
}
