package notify

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"toolguard.dev/toolguard"
)

// What endpoints can be told of.
const (
	Approval  = "approval"  // a request for a person's approval, and what became of it
	Escalated = "escalated" // an outcome that only a person can find out, or that evidence contradicts
)

// Topics are all that an endpoint can be told of.
var Topics = []string{Approval, Escalated}

// topics says which events are told, under which topic and type.
var topics = map[toolguard.EventType]struct{ topic, name string }{
	toolguard.EventApprovalRequested: {Approval, "approval.requested"},
	toolguard.EventApprovalDecided:   {Approval, "approval.decided"},
	toolguard.EventEscalated:         {Escalated, "operation.escalated"},
	toolguard.EventConflict:          {Escalated, "operation.conflict"},
}

// message is the body of a notification. Neither arguments nor results are in it: what a person has to look at is where
// the person logs in.
type message struct {
	Type      string    `json:"type"`
	Timestamp time.Time `json:"timestamp"` // of the event
	Data      data      `json:"data"`
}

type data struct {
	Key         string           `json:"key"`
	Tool        string           `json:"tool"`
	Tenant      string           `json:"tenant,omitempty"`
	Workflow    string           `json:"workflow,omitempty"`
	SourceEvent string           `json:"source_event,omitempty"`
	Run         string           `json:"run,omitempty"`
	Occurrence  int              `json:"occurrence,omitempty"`
	Attempt     int              `json:"attempt,omitempty"`
	Status      toolguard.Status `json:"status,omitempty"` // at the event
	Now         toolguard.Status `json:"now,omitempty"`    // when this was sent
	Approval    string           `json:"approval,omitempty"`
	Expires     string           `json:"expires,omitempty"` // of the request for approval
	Verdict     string           `json:"verdict,omitempty"` // approve, reject, withdrawn or expired
	Owner       string           `json:"owner,omitempty"`
	Age         int64            `json:"age_seconds"` // since the event, when this was sent
	Link        string           `json:"link,omitempty"`
}

// wants reports whether an endpoint is told of an event.
func (e *Endpoint) wants(ev *toolguard.Event) bool {
	t, ok := topics[ev.Type]
	return ok && slices.Contains(e.On, t.topic)
}

// write makes the body for an event.
func (n *Notifier) write(ctx context.Context, ev *toolguard.Event, now time.Time) ([]byte, error) {
	d := data{
		Key: ev.Key, Tool: ev.Tool, Tenant: ev.Tenant, Workflow: ev.Workflow, SourceEvent: ev.SourceEvent, Run: ev.Run,
		Occurrence: ev.Occurrence, Attempt: ev.Attempt, Status: ev.Status, Approval: ev.Approval,
		Age: max(int64(now.Sub(ev.Time)/time.Second), 0),
	}
	d.Expires, _ = ev.Detail["expires"].(string)
	d.Verdict, _ = ev.Detail["verdict"].(string)
	if page, err := n.store.Operations(ctx, toolguard.Query{Key: ev.Key}); err == nil && len(page.Operations) > 0 {
		d.Now = page.Operations[0].Status
	}
	if n.options.Owner != nil {
		d.Owner = n.options.Owner(ev.Tool)
	}
	if n.options.Link != nil {
		d.Link = n.options.Link(ev.Key)
	}
	return json.Marshal(message{Type: topics[ev.Type].name, Timestamp: ev.Time.UTC(), Data: d})
}

// idOf is the same whenever, and by whichever process, an event is told.
func idOf(ev *toolguard.Event) string { return "msg_" + ev.Hash[:min(len(ev.Hash), 32)] }
