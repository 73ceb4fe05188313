package console

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"toolguard.dev/people"
	"toolguard.dev/toolguard"
)

const (
	tallyHours = 7 * 24
	tallyWait  = 60 * time.Millisecond // that a page waits for the tally to catch up
	tallyPage  = 1000
)

// tally counts the calls of the last days by hour, from the audit. It reads on only when it is looked at.
type tally struct {
	store toolguard.Store

	mu      sync.Mutex
	begun   bool
	running bool
	after   uint64                 // read up to this sequence
	until   time.Time              // of the last event read
	hours   map[int64]map[slot]int // by Unix hour
	behind  chan struct{}          // closed when it has caught up; nil: it was not looked at
	failed  error
}

// slot is what a call is counted under.
type slot struct {
	tenant  string
	outcome toolguard.Outcome
}

func newTally(store toolguard.Store) *tally {
	return &tally{store: store, hours: map[int64]map[slot]int{}}
}

// catchUp has what is new counted, and waits for that a little. It reports whether all was counted.
func (t *tally) catchUp(log *slog.Logger) bool {
	t.mu.Lock()
	if !t.running {
		t.running, t.behind = true, make(chan struct{})
		go t.run(log)
	}
	behind := t.behind
	t.mu.Unlock()
	wait := time.NewTimer(tallyWait)
	defer wait.Stop()
	select {
	case <-behind:
		t.mu.Lock()
		defer t.mu.Unlock()
		return t.failed == nil
	case <-wait.C:
		return false
	}
}

// run counts until there is nothing more to count.
func (t *tally) run(log *slog.Logger) {
	err := t.count(context.Background())
	if err != nil && !errors.Is(err, toolguard.ErrStoreClosed) {
		log.Warn("the console could not count calls", "error", err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.running, t.failed = false, err
	close(t.behind)
}

func (t *tally) count(ctx context.Context) error {
	t.mu.Lock()
	after, begun := t.after, t.begun
	t.mu.Unlock()
	if !begun {
		var err error
		if after, err = t.begin(ctx, time.Now().Add(-tallyHours*time.Hour)); err != nil {
			return err
		}
	}
	for {
		page, err := t.store.Events(ctx, after, tallyPage)
		if err != nil {
			return err
		}
		t.mu.Lock()
		for i := range page {
			t.add(&page[i])
		}
		if len(page) > 0 {
			after = page[len(page)-1].Seq
		}
		t.after, t.begun = after, true
		t.mu.Unlock()
		if len(page) < tallyPage {
			return nil
		}
	}
}

// begin finds the sequence before the first event after a moment, by halving: times rise with sequences.
func (t *tally) begin(ctx context.Context, since time.Time) (uint64, error) {
	page, err := t.store.Operations(ctx, toolguard.Query{All: true, Limit: 1})
	if err != nil {
		return 0, err
	}
	low, high := uint64(0), page.Seq
	for low < high {
		middle := low + (high-low)/2
		events, err := t.store.Events(ctx, middle, 1)
		if err != nil {
			return 0, err
		}
		if len(events) > 0 && events[0].Time.Before(since) {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return low, nil
}

// add counts one event. The lock is held.
func (t *tally) add(e *toolguard.Event) {
	t.until = e.Time
	if e.Type != toolguard.EventCall {
		return
	}
	hour := e.Time.Unix() / 3600
	of := t.hours[hour]
	if of == nil {
		of = map[slot]int{}
		t.hours[hour] = of
		for old := range t.hours {
			if old <= hour-tallyHours {
				delete(t.hours, old)
			}
		}
	}
	of[slot{e.Tenant, e.Outcome}]++
}

// bars are the counts of the last n hours, the latest last, of the tenants that sees lets through.
func (t *tally) bars(now time.Time, n int, sees func(string) bool) []map[toolguard.Outcome]int {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make([]map[toolguard.Outcome]int, n)
	last := now.Unix() / 3600
	for i := range out {
		out[i] = map[toolguard.Outcome]int{}
		for s, calls := range t.hours[last-int64(n-1-i)] {
			if sees(s.tenant) {
				out[i][s.outcome] += calls
			}
		}
	}
	return out
}

var meanings = map[toolguard.Outcome]string{
	toolguard.Fresh: "sent, and the tool answered", toolguard.Replayed: "done before; the recorded result was given", toolguard.Pending: "waits, or is being found out",
	toolguard.Blocked: "not sent", toolguard.Escalated: "a person must find out",
}

// Size of the picture, in its own units.
const (
	pictureWidth  = 720
	pictureHeight = 220
	pictureLeft   = 44
	pictureBase   = 190
)

// block is a rectangle of the picture.
type block struct {
	X, Y, Width, Height float64
	Kind, Says          string
}

type mark struct {
	X, Y float64
	Text string
}

// activity shows what calls came to, over time.
func (v *visit) activity() error {
	hours, step := 24, 1
	if v.r.URL.Query().Get("days") == "7" {
		hours, step = tallyHours, 6
	}
	var body struct {
		Week   bool
		Whole  bool // all was counted
		Until  time.Time
		Now    time.Time
		Blocks []block
		Marks  []mark
		Rows   []row
		Calls  int
	}
	body.Week, body.Now = step > 1, v.now
	body.Whole = v.tally.catchUp(v.log)
	v.tally.mu.Lock()
	body.Until = v.tally.until
	v.tally.mu.Unlock()
	bars := v.tally.bars(v.now, hours, v.desk.Sees)
	total := map[toolguard.Outcome]int{}
	for _, b := range bars {
		for o, n := range b {
			total[o] += n
			body.Calls += n
		}
	}
	body.Blocks, body.Marks = picture(bars, step, v.now)
	for _, o := range people.Outcomes {
		body.Rows = append(body.Rows, row{o, callKind(o), meanings[o], total[o]})
	}
	v.show(http.StatusOK, "activity", "What calls came to", body)
	return nil
}

// row is an outcome with its count.
type row struct {
	Outcome toolguard.Outcome
	Kind    string
	Means   string
	Calls   int
}

// picture draws stacked bars, each of step hours.
func picture(hours []map[toolguard.Outcome]int, step int, now time.Time) (blocks []block, marks []mark) {
	var bars []map[toolguard.Outcome]int
	most := 1
	for part := range slices.Chunk(hours, step) {
		sum, all := map[toolguard.Outcome]int{}, 0
		for _, h := range part {
			for o, n := range h {
				sum[o] += n
				all += n
			}
		}
		bars, most = append(bars, sum), max(most, all)
	}
	width := float64(pictureWidth-pictureLeft) / float64(len(bars))
	for i, bar := range bars {
		y := float64(pictureBase)
		began := now.Truncate(time.Hour).Add(time.Duration(-len(hours)+1+i*step) * time.Hour).UTC()
		for _, o := range people.Outcomes {
			if bar[o] == 0 {
				continue
			}
			h := max(1.5, float64(bar[o])/float64(most)*(pictureBase-16))
			y -= h
			blocks = append(blocks, block{pictureLeft + float64(i)*width + 1, y, width - 2, h, callKind(o), fmt.Sprintf("%s: %d %s", began.Format("2 Jan 15:04"), bar[o], o)})
		}
		if every := max(1, len(bars)/7); i%every == 0 {
			form := "15:04"
			if step > 1 {
				form = "2 Jan"
			}
			marks = append(marks, mark{pictureLeft + float64(i)*width, pictureBase + 18, began.Format(form)})
		}
	}
	marks = append(marks, mark{0, 20, fmt.Sprint(most)}, mark{0, pictureBase, "0"})
	return blocks, marks
}
