package toolguard

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"toolguard.dev/keyderive"
)

// Summary is one operation as its own caller may see it.
type Summary struct {
	Key          string          `json:"key"`
	Tool         string          `json:"tool"`
	Status       Status          `json:"status"`
	Occurrence   int             `json:"occurrence"`
	Attempts     int             `json:"attempts"`
	RecordedAt   time.Time       `json:"recorded_at"`
	SettledAt    *time.Time      `json:"settled_at,omitempty"`
	DownstreamID string          `json:"downstream_id,omitempty"`
	Says         string          `json:"says,omitempty"` // the tool's own words on the latest attempt
	Arguments    json.RawMessage `json:"arguments,omitempty"`
	Result       json.RawMessage `json:"result,omitempty"`
}

// Lookup returns one operation with its arguments and result. Only those of the caller's tenant and workflow exist for
// it: for others the error wraps ErrNotFound.
func (g *Guard) Lookup(ctx context.Context, f keyderive.Facts, key string) (Summary, error) {
	tenant, workflow := cmpOr(f.Tenant, "default"), cmpOr(f.Workflow, "default")
	page, err := g.operations(ctx, Query{Tenant: tenant, Key: key})
	if err != nil {
		return Summary{}, err
	}
	if len(page.Operations) == 0 || page.Operations[0].Facts.Workflow != workflow {
		return Summary{}, fmt.Errorf("operation %s: %w", key, ErrNotFound)
	}
	s := summaryOf(page.Operations[0])
	if body, err := g.store.Body(ctx, key); err == nil {
		s.Arguments, s.Result = body.Arguments, body.Result
	}
	return s, nil
}

// Recent returns up to n operations of the caller's tenant and workflow, latest created first, without arguments and results.
func (g *Guard) Recent(ctx context.Context, f keyderive.Facts, n int) ([]Summary, error) {
	tenant, workflow := cmpOr(f.Tenant, "default"), cmpOr(f.Workflow, "default")
	var all []Summary
	for before := uint64(0); ; {
		page, err := g.operations(ctx, Query{Tenant: tenant, All: true, Before: before, Limit: 200})
		if err != nil {
			return nil, err
		}
		for _, op := range page.Operations {
			if op.Facts.Workflow != workflow {
				continue
			}
			if all = append(all, summaryOf(op)); len(all) == n {
				return all, nil
			}
		}
		if before = page.Next; before == 0 {
			return all, nil
		}
	}
}

func summaryOf(op *Operation) Summary {
	s := Summary{
		Key: op.Key, Tool: op.Action, Status: op.Status, Occurrence: op.Occurrence, Attempts: op.Sent,
		RecordedAt: op.Created.UTC(), DownstreamID: op.DownstreamID, Says: op.latest().Says,
	}
	if !op.Settled.IsZero() {
		settled := op.Settled.UTC()
		s.SettledAt = &settled
	}
	return s
}
