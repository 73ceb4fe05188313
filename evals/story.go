package evals

import (
	"hash/fnv"
	"sync"
	"time"
)

// Story is what happened in one run, in order.
type Story struct {
	Run   string `json:"run"` // its file and name
	Fault string `json:"fault"`
	Arm   string `json:"arm"`
	Lines []Line `json:"lines"`

	mu    sync.Mutex
	began time.Time
}

// Line is one thing that happened.
type Line struct {
	At   float64 `json:"at"`   // seconds from the run's beginning, on its own clock
	Step int     `json:"step"` // -1: of no step
	Who  string  `json:"who"`  // agent, answer, downstream or verdict
	Text string  `json:"text"`
}

// maxLines is how much of a story is kept.
const maxLines = 400

func (s *Story) add(step int, who, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.Lines) < maxLines {
		s.Lines = append(s.Lines, Line{At: time.Since(s.began).Seconds(), Step: step, Who: who, Text: text})
	}
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
