package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"toolguard.dev/people"
	"toolguard.dev/toolguard"
)

// flushEvery is how many events are written at a time.
const (
	flushEvery = 1000
	maxEvents  = 1 << 30
	writeTime  = 30 * time.Second // for each part
)

// events writes the audit as JSON lines, exactly as export does: each is one link of its chain.
func (x *exchange) events() error {
	q, err := x.query("after", "chain", "limit")
	if err != nil {
		return err
	}
	after, limit := uint64(0), maxEvents
	if s := q.Get("after"); s != "" {
		if after, err = strconv.ParseUint(s, 10, 63); err != nil {
			return problem{http.StatusBadRequest, "parameter", "after must be the seq of the last event that is there already."}
		}
	}
	if s := q.Get("limit"); s != "" {
		if limit, err = strconv.Atoi(s); err != nil || limit < 1 {
			return problem{http.StatusBadRequest, "parameter", "The limit must be 1 or more."}
		}
	}
	control := http.NewResponseController(x.w)
	x.w.Header().Set("Content-Type", "application/jsonl")
	e := json.NewEncoder(x.w)
	e.SetEscapeHTML(false)
	n := 0
	for event, err := range x.desk.Events(x.r.Context(), q.Get("chain"), after) {
		switch {
		case err != nil && n == 0:
			return err
		case err != nil: // a line of it was sent: only a broken answer tells that there is less than there is
			x.log.Error("the audit could not be read to its end", "error", err)
			panic(http.ErrAbortHandler)
		}
		if err := e.Encode(event); err != nil {
			return nil // nobody reads any more
		}
		if n++; n == limit {
			return nil
		}
		if n%flushEvery == 0 {
			_ = control.SetWriteDeadline(time.Now().Add(writeTime))
			_ = control.Flush()
		}
	}
	return nil
}

func (x *exchange) report() error {
	q, err := x.query("since", "run", "event")
	if err != nil {
		return err
	}
	of := toolguard.ReportQuery{Run: q.Get("run"), Event: q.Get("event")}
	if s := q.Get("since"); s != "" {
		if of.Since, err = moment(s, time.Now()); err != nil {
			return problem{http.StatusBadRequest, "parameter", err.Error()}
		}
	}
	r, err := people.ReportOf(x.desk.Events(x.r.Context(), "", 0), of)
	if err != nil {
		return err
	}
	return x.answer(&r)
}

// moment reads a time, or how long ago it was.
func moment(text string, now time.Time) (time.Time, error) {
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	for _, layout := range []string{time.RFC3339, time.DateOnly} {
		if t, err := time.Parse(layout, text); err == nil {
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf("since must be a time such as 2026-08-31T12:00:00Z or 2026-08-31, or a duration such as 24h, not %.60q", text)
}
