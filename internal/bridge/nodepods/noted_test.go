package nodepods

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// counted is a context that knows who waits for its end.
type counted struct {
	context.Context
	mu    sync.Mutex
	waits map[int]bool
	last  int
}

// Value hides that it is one of package context's own: those keep who waits to themselves.
func (c *counted) Value(any) any { return nil }

// AfterFunc is what package context asks a context of another's making for.
func (c *counted) AfterFunc(f func()) (stop func() bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last++
	id := c.last
	c.waits[id] = true
	stopped := context.AfterFunc(c.Context, f)
	return func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.waits, id)
		return stopped()
	}
}

// A pause ends with its time or with the context, and nothing of it is left with a context that goes on: a bridge that has no API server
// for weeks makes one every half a minute.
func TestAPauseLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		parent, end := context.WithCancel(t.Context())
		ctx := &counted{Context: parent, waits: map[int]bool{}}
		c, began := endingClock{ctx: ctx}, time.Now()
		for range 3 {
			<-c.After(30 * time.Second)
		}
		synctest.Wait()
		if took := time.Since(began); took != 90*time.Second || len(ctx.waits) > 0 || ctx.last != 3 {
			t.Errorf("three pauses took %v, and %d of %d are left", took, len(ctx.waits), ctx.last)
		}
		waits := c.After(time.Hour)
		end()
		<-waits
		if took := time.Since(began); took != 90*time.Second {
			t.Errorf("the last went on for %v after the end", took-90*time.Second)
		}
		<-c.After(time.Hour) // one that begins after the end
	})
}
