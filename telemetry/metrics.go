package telemetry

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"toolguard.dev/toolguard"
)

const (
	maxTools   = 500             // names of tools that are told apart; the others are "other"
	scrapeTime = 5 * time.Second // that a scrape waits for the ledger
	keepCounts = 5 * time.Second // how long what was counted in the ledger is good: to count reads all open operations
	maxScrapes = 4               // at a time
)

// Metrics are those of one process. It is safe for concurrent use.
type Metrics struct {
	registry *prometheus.Registry
	calls    *prometheus.CounterVec
	events   *prometheus.CounterVec
	store    *prometheus.HistogramVec
	errors   *prometheus.CounterVec

	mu    sync.Mutex
	tools map[string]bool
}

// NewMetrics returns metrics under which nothing happened yet.
func NewMetrics(version string) *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(), tools: map[string]bool{},
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "toolguard_calls_total", Help: "Calls answered by this process, by what they got."}, []string{"tool", "outcome", "reason"}),
		events: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "toolguard_events_total", Help: "Audit events written by this process: type dispatched counts attempts."}, []string{"tool", "type"}),
		store: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "toolguard_store_duration_seconds", Help: "How long the ledger took, as this process saw it.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}}, []string{"method"}),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "toolguard_store_errors_total", Help: "What the ledger refused or could not do; conflicts, which are decided anew, are not counted."}, []string{"method"}),
	}
	build := prometheus.NewGauge(prometheus.GaugeOpts{Name: "toolguard_build_info", Help: "1, with the version.", ConstLabels: prometheus.Labels{"version": valid(version)}})
	build.Set(1)
	m.registry.MustRegister(m.calls, m.events, m.store, m.errors, build, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Handler serves the metrics, with what is open in the ledger at that time.
func (m *Metrics) Handler(store toolguard.Store) http.Handler {
	all := prometheus.NewRegistry()
	all.MustRegister(&ledger{store: store})
	return promhttp.HandlerFor(prometheus.Gatherers{m.registry, all}, promhttp.HandlerOpts{
		ErrorHandling: promhttp.ContinueOnError, MaxRequestsInFlight: maxScrapes, Timeout: 2 * scrapeTime,
	})
}

// tool is the label of a tool; there is a limit to how many there are.
func (m *Metrics) tool(name string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case name == "" || m.tools[name]:
	case len(m.tools) >= maxTools:
		return "other"
	default:
		m.tools[name] = true
	}
	return valid(name)
}

func valid(s string) string { return strings.ToValidUTF8(s, "�") }

// saw counts an event that was written.
func (m *Metrics) saw(e *toolguard.Event) {
	tool := m.tool(e.Tool)
	m.events.WithLabelValues(tool, string(e.Type)).Inc()
	if e.Type == toolguard.EventCall {
		m.calls.WithLabelValues(tool, string(e.Outcome), string(e.Reason)).Inc()
	}
}

// ledger collects what is open.
type ledger struct {
	store toolguard.Store

	mu    sync.Mutex
	at    time.Time
	count map[toolguard.Status]int
	since map[string]time.Time // by queue: when the oldest began to wait
	ok    bool
}

var (
	openOperations = prometheus.NewDesc("toolguard_open_operations", "Operations in the ledger that are not final, or done and not delivered, by status.", []string{"status"}, nil)
	oldestWaiting  = prometheus.NewDesc("toolguard_oldest_waiting_seconds", "How long the oldest has waited for a person: queue approval or escalated; 0: none waits.", []string{"queue"}, nil)
	ledgerUp       = prometheus.NewDesc("toolguard_ledger_up", "Whether the ledger could be read.", nil, nil)
)

// openStatuses are those that are shown also where nothing has them. Done and not delivered counts as succeeded.
var openStatuses = []toolguard.Status{toolguard.StatusAwaitingApproval, toolguard.StatusApproved, toolguard.StatusDispatching, toolguard.StatusUnknown,
	toolguard.StatusEscalated, toolguard.StatusFailed, toolguard.StatusSucceeded}

// doubted is since when it is not known what became of an operation, as nearly as its record tells.
func doubted(op *toolguard.Operation) time.Time {
	if n := len(op.Attempts); n > 0 {
		if a := &op.Attempts[n-1]; !a.Ended.IsZero() {
			return a.Ended
		}
		return op.Attempts[n-1].Started
	}
	return op.Created
}

func (l *ledger) Describe(c chan<- *prometheus.Desc) {
	c <- openOperations
	c <- oldestWaiting
	c <- ledgerUp
}

func (l *ledger) Collect(c chan<- prometheus.Metric) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if l.at.IsZero() || now.Sub(l.at) > keepCounts {
		l.read(now)
	}
	up := 0.0
	if l.ok {
		up = 1
		for status, n := range l.count {
			c <- prometheus.MustNewConstMetric(openOperations, prometheus.GaugeValue, float64(n), string(status))
		}
		for queue, at := range l.since {
			age := 0.0
			if !at.IsZero() {
				age = max(now.Sub(at).Seconds(), 0)
			}
			c <- prometheus.MustNewConstMetric(oldestWaiting, prometheus.GaugeValue, age, queue)
		}
	}
	c <- prometheus.MustNewConstMetric(ledgerUp, prometheus.GaugeValue, up)
}

// read counts what is open. The lock is held.
func (l *ledger) read(now time.Time) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTime)
	defer cancel()
	page, err := l.store.Operations(ctx, toolguard.Query{Open: true})
	l.at, l.ok = now, err == nil
	l.count = map[toolguard.Status]int{}
	for _, s := range openStatuses {
		l.count[s] = 0
	}
	l.since = map[string]time.Time{"approval": {}, "escalated": {}}
	older := func(queue string, at time.Time) {
		if old := l.since[queue]; old.IsZero() || at.Before(old) {
			l.since[queue] = at
		}
	}
	for _, op := range page.Operations {
		l.count[op.Status]++
		switch {
		case op.Status == toolguard.StatusAwaitingApproval && op.Approval != nil:
			older("approval", op.Approval.Requested)
		case op.Status == toolguard.StatusEscalated:
			older("escalated", doubted(op))
		}
	}
}
