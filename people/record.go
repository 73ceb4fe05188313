package people

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	"toolguard.dev/toolguard"
)

// document is where a ledger keeps who decides about it.
const document = "reviewers"

// Remember keeps the members in the ledger, so that a command that was told only where the ledger is asks for a token as
// well. Only the SHA-256 of a token is kept.
func Remember(ctx context.Context, store toolguard.Store, members []Member) error {
	for {
		old, rev, err := remembered(ctx, store)
		if err != nil {
			return err
		}
		if len(old) == 0 && len(members) == 0 || reflect.DeepEqual(old, members) {
			return nil
		}
		data, err := json.Marshal(members)
		if err != nil {
			return fmt.Errorf("reviewers: %w", err)
		}
		token, _ := NewToken()
		err = store.Commit(ctx, &toolguard.Write{Token: token, Document: document, Data: data, DocumentRev: rev})
		if !errors.Is(err, toolguard.ErrConflict) {
			return err
		}
	}
}

// Remembered are the members that a ledger keeps.
func Remembered(ctx context.Context, store toolguard.Store) ([]Member, error) {
	members, _, err := remembered(ctx, store)
	return members, err
}

func remembered(ctx context.Context, store toolguard.Store) (members []Member, rev uint64, err error) {
	data, rev, err := store.Document(ctx, document)
	if errors.Is(err, toolguard.ErrNotFound) {
		return nil, 0, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &members)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("the ledger's reviewers: %w", err)
	}
	return members, rev, nil
}
