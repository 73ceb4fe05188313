package main

import (
	"context"
	"fmt"
	"strings"

	"toolguard.dev/toolguard"
)

const (
	minPrefix    = 8 // letters of a key that may stand for it
	maxAmbiguous = 10
)

// findOperation is the operation with a key, or with the only key that begins so.
func findOperation(ctx context.Context, store toolguard.Store, key string) (*toolguard.Operation, error) {
	page, err := store.Operations(ctx, toolguard.Query{Key: key})
	if err != nil {
		return nil, err
	}
	if len(page.Operations) > 0 {
		return page.Operations[0], nil
	}
	if len(key) < minPrefix {
		return nil, fmt.Errorf("operation %s: %w; ops list shows the keys, of which the first %d letters are enough", short(key, 80), toolguard.ErrNotFound, minPrefix)
	}
	var found []*toolguard.Operation
	for before := uint64(0); ; {
		page, err := store.Operations(ctx, toolguard.Query{All: true, Before: before, Limit: 500})
		if err != nil {
			return nil, err
		}
		for _, op := range page.Operations {
			if strings.HasPrefix(op.Key, key) {
				found = append(found, op)
			}
		}
		if before = page.Next; before == 0 {
			break
		}
	}
	switch len(found) {
	case 0:
		return nil, fmt.Errorf("operation %s: %w; ops list shows the keys", short(key, 80), toolguard.ErrNotFound)
	case 1:
		return found[0], nil
	}
	var keys []string
	for _, op := range found[:min(len(found), maxAmbiguous)] {
		keys = append(keys, fmt.Sprintf("%s (%s)", op.Key, printable(op.Action)))
	}
	if more := len(found) - len(keys); more > 0 {
		keys = append(keys, fmt.Sprintf("%d more", more))
	}
	return nil, fmt.Errorf("%s is the beginning of several keys: %s", short(key, 80), listed(keys))
}
