package badgerstore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	"toolguard.dev/badgerstore"
	"toolguard.dev/toolguard"
)

// fill writes until the disk is full, and finds everything that was acknowledged, in this round and the ones before.
func fill(dir, round string) error {
	s, err := badgerstore.Open(dir, &badgerstore.Options{MinFree: 8 << 20})
	if err != nil {
		return err
	}
	random := rand.NewChaCha8([32]byte{1})
	stored := 0
	for ; ; stored++ {
		result := make([]byte, 300<<10)
		random.Read(result)
		w := write(fmt.Sprint(round, " ", stored))
		w.Body = &toolguard.Body{Result: result}
		err := s.Commit(context.Background(), w)
		if errors.Is(err, toolguard.ErrStoreFull) {
			break
		}
		if err != nil {
			return err
		}
	}
	page, err := s.Operations(context.Background(), toolguard.Query{All: true, Limit: 100_000})
	if err != nil {
		return err
	}
	if len(page.Operations) < stored {
		return fmt.Errorf("%d operations were acknowledged, %d are there", stored, len(page.Operations))
	}
	for _, op := range page.Operations {
		if _, err := s.Body(context.Background(), op.Key); err != nil {
			return err
		}
	}
	v, err := toolguard.Verify(toolguard.Events(context.Background(), s))
	if err != nil || v.Break != "" {
		return fmt.Errorf("the audit: %v %s", err, v.Break)
	}
	fmt.Printf("%d stored, %d in all, %d events\n", stored, len(page.Operations), v.Events)
	return s.Close()
}
