package evals

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"toolguard.dev/toolguard"
)

// desk is a person with a token at the API of a running mcp-server.
type desk struct {
	token string
}

func newDesk() *desk { return &desk{"tg_" + rand.Text()} }

// reviewers is the desk's entry in a configuration.
func (d *desk) reviewers() any {
	sum := sha256.Sum256([]byte(d.token))
	return map[string]any{"dana": map[string]any{"token_sha256": hex.EncodeToString(sum[:]), "roles": []string{"reviewer"}}}
}

// ask sends a request to the API at an address.
func (d *desk) ask(ctx context.Context, address, method, path string, body, into any) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var text []byte
	if body != nil {
		var err error
		if text, err = json.Marshal(body); err != nil {
			return err
		}
	}
	r, err := http.NewRequestWithContext(ctx, method, address+"/api/v1/"+path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+d.token)
	r.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if text, err = io.ReadAll(io.LimitReader(answer.Body, maxLine)); err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", answer.Status, clip(string(text), 300))
	}
	return json.Unmarshal(text, into)
}

// operations lists all that are on record.
func (d *desk) operations(ctx context.Context, address string) (all []*toolguard.Operation, err error) {
	for next := ""; ; {
		var page struct {
			Operations []*toolguard.Operation `json:"operations"`
			Next       string                 `json:"next"`
		}
		if err := d.ask(ctx, address, http.MethodGet, "operations?limit=500"+next, nil, &page); err != nil {
			return nil, err
		}
		all = append(all, page.Operations...)
		if page.Next == "" {
			return all, nil
		}
		next = "&cursor=" + url.QueryEscape(page.Next)
	}
}

// decide says yes or no to a request for approval, as it was shown.
func (d *desk) decide(ctx context.Context, address string, a *toolguard.Approval, yes bool) error {
	verb := "reject"
	if yes {
		verb = "approve"
	}
	var op toolguard.Operation
	return d.ask(ctx, address, http.MethodPost, "approvals/"+url.PathEscape(a.ID)+"/"+verb, map[string]string{"digest": a.Digest}, &op)
}

// waits reports whether an operation is in a queue for people.
func waits(op *toolguard.Operation) bool {
	switch op.Status {
	case toolguard.StatusAwaitingApproval:
		return op.Approval.Stands(time.Now()) == toolguard.ApprovalOpen
	case toolguard.StatusEscalated:
		return op.Ordered == nil || op.Contradicted()
	}
	return op.Contradicted()
}
