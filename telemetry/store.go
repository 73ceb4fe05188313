package telemetry

import (
	"context"
	"errors"
	"time"

	"toolguard.dev/toolguard"
)

// Store returns a store that counts what is written to it and how long it takes. Closing it closes the other.
func (m *Metrics) Store(store toolguard.Store) toolguard.Store { return &counted{store, m} }

type counted struct {
	toolguard.Store
	metrics *Metrics
}

// took records how long a method took. What it did not find, or was told to decide anew, is no error.
func (c *counted) took(method string, began time.Time, err error) {
	c.metrics.store.WithLabelValues(method).Observe(time.Since(began).Seconds())
	if err != nil && !errors.Is(err, toolguard.ErrNotFound) && !errors.Is(err, toolguard.ErrConflict) && !errors.Is(err, toolguard.ErrStoreClosed) &&
		!errors.Is(err, context.Canceled) {
		c.metrics.errors.WithLabelValues(method).Inc()
	}
}

func (c *counted) Commit(ctx context.Context, w *toolguard.Write) error {
	began := time.Now()
	lazy, events := w.Lazy, w.Events // a lazy write is the store's once it was taken
	if lazy {
		events = append([]toolguard.Event(nil), events...)
	}
	err := c.Store.Commit(ctx, w)
	if !lazy {
		c.took("commit", began, err)
	}
	if err == nil {
		for i := range events {
			c.metrics.saw(&events[i])
		}
	}
	return err
}

func (c *counted) Operations(ctx context.Context, q toolguard.Query) (toolguard.Page, error) {
	began := time.Now()
	page, err := c.Store.Operations(ctx, q)
	c.took("operations", began, err)
	return page, err
}

func (c *counted) Body(ctx context.Context, key string) (toolguard.Body, error) {
	began := time.Now()
	body, err := c.Store.Body(ctx, key)
	c.took("body", began, err)
	return body, err
}

func (c *counted) Events(ctx context.Context, after uint64, limit int) ([]toolguard.Event, error) {
	began := time.Now()
	events, err := c.Store.Events(ctx, after, limit)
	c.took("events", began, err)
	return events, err
}

func (c *counted) History(ctx context.Context, key string, after uint64, limit int) ([]toolguard.Event, error) {
	began := time.Now()
	events, err := c.Store.History(ctx, key, after, limit)
	c.took("history", began, err)
	return events, err
}

func (c *counted) Document(ctx context.Context, name string) ([]byte, uint64, error) {
	began := time.Now()
	data, rev, err := c.Store.Document(ctx, name)
	c.took("document", began, err)
	return data, rev, err
}
