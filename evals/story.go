package evals

import (
	"fmt"
	"hash/fnv"
	"strings"
	"sync"
	"time"
	"unicode"
)

// Story is what happened in one run, in order.
type Story struct {
	Run   string `json:"run"` // its file and name
	Fault string `json:"fault"`
	Arm   string `json:"arm"`
	Lines []Line `json:"lines"`

	mu    sync.Mutex
	began time.Time
	left  int // lines that were not kept
}

// Line is one thing that happened.
type Line struct {
	At   float64 `json:"at"`   // seconds from the run's beginning, on its own clock
	Step int     `json:"step"` // -1: of no step
	Who  string  `json:"who"`  // agent, answer, downstream, person or verdict
	Text string  `json:"text"`
}

// maxLines is how much of a story is kept, beside its end.
const maxLines = 150

func (s *Story) add(step int, who, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.Lines) >= maxLines && who != verdict {
		s.left++
		return
	}
	if s.left > 0 {
		s.Lines = append(s.Lines, Line{At: time.Since(s.began).Seconds(), Step: -1, Who: "agent", Text: fmt.Sprintf("… and %d lines more", s.left)})
		s.left = 0
	}
	s.Lines = append(s.Lines, Line{At: time.Since(s.began).Seconds(), Step: step, Who: who, Text: Printable(text)})
}

// verdict says a line that ends a story.
const verdict = "verdict"

// Printable is a text on one line, without what a terminal or a browser would act on: runs hold other people's text.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t' || r == '\r':
			return ' '
		case !unicode.IsPrint(r):
			return unicode.ReplacementChar
		}
		return r
	}, text)
}

// sum64 is a number that stands for names.
func sum64(names ...string) uint64 {
	h := fnv.New64a()
	for _, name := range names {
		_, _ = h.Write([]byte(name))
		_, _ = h.Write([]byte{0})
	}
	return h.Sum64()
}
