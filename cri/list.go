package cri

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"
)

// Listing is all that the runtime has, as of Time, in the runtime's order. It is never changed once
// made.
type Listing struct {
	Time       time.Time
	Sandboxes  []PodSandbox
	Containers []Container // exited ones too
}

// How often details are asked for again. They can change in place (the kubelet resizes pods), and a
// verbose status costs a call of about 0.5 ms: List asks for a bounded number, and so takes at most
// 16 ms more than one that asks for none. What a sandbox was made of hardly does, and its status is
// twice as dear. Where the runtime tells of changes (see Told) only those are missed that another
// NRI plugin makes by itself: no plugin is told of them (containerd 2.4.2 internal/nri/nri.go
// applyUpdates).
const (
	refreshAge     = time.Minute
	refreshTold    = 5 * time.Minute
	refreshSandbox = 10 * time.Minute
	refreshMax     = 32
	// retryAge is how long a status that was not answered in time is left alone: it costs its whole
	// deadline.
	retryAge = 10 * time.Second
	// plainAge is how long the plain status is asked for where the verbose one does not come in time.
	plainAge = time.Hour
)

// Lister lists, and remembers what the verbose statuses said. Use it from one goroutine at a time.
type Lister struct {
	client     *Client
	now        func() time.Time
	sandboxes  map[string]*known[sandboxDetail]
	containers map[string]*known[containerDetail]
	told       bool // the runtime tells of each change
}

// known is what a status said of one sandbox or container.
type known[D any] struct {
	detail   D
	answered bool // detail holds an answer
	// the verbose answer was too large, as it stays; what is asked for since is the plain one
	refused bool
	late    int       // verbose answers in a row that did not come in time
	plain   time.Time // until then the plain one is asked for, because of those
	// a container that has exited: what was known of it stays true, and what was not has time
	dead      bool
	changed   bool           // the runtime has told of it since it was answered
	state     ContainerState // as listed when that answer was asked for
	asked     time.Time      // the last time, answered or not; zero: never
	notBefore time.Time      // it is not asked again earlier
}

// ask is a status to ask for.
type ask struct {
	asked  time.Time // the last time
	urgent bool      // what is known is nothing, or of another state
	do     func(ctx context.Context, limit time.Duration) error
}

// NewLister returns a Lister that remembers nothing yet.
func NewLister(c *Client) *Lister {
	return &Lister{client: c, now: time.Now}
}

// Told says whether the runtime tells of each change of what it has. Then only the containers that
// it has told of since the last List are asked about as soon as any are, and others each five
// minutes.
func (l *Lister) Told(told bool, changed map[string]bool) {
	l.told = told
	for id := range changed {
		if k := l.containers[id]; k != nil {
			k.changed = true
		}
	}
}

// List asks for all sandboxes and all containers, and for the details of those that are new:
// containers unless they have exited, and again when one starts. Of the others that are alive, it
// asks again for the details that are older than a minute (of sandboxes: ten; after Told: five),
// and once for those of containers that have exited in a ready sandbox, for they count in its pod's
// request, and for how they ended; 32 of all these at most. A sandbox or container that goes away
// between two calls, or whose status fails, is left without details, or with those known: that is
// no error, and a later List asks again. A sandbox of which the containers cannot be listed for
// their size is Refused, and none keeps those of others from being listed (see listInParts). Of
// pods without a ready sandbox no more than endedMost containers that have exited are listed, and
// no more sandboxes, but those that may be static or have what decides. Where all sandboxes are too
// large for one answer, new ones without any container that may run can be left out, never others.
// One whose verbose status is too large is Refused, and asked for the plain one from then on. When
// ctx ends, or a status is not answered in time, what is known so far is returned.
func (l *Lister) List(ctx context.Context) (Listing, error) {
	within, done := l.client.link.alone(ctx, l.client.timeouts.list)
	defer done()
	out := Listing{Time: l.now()}
	var err error
	if out.Sandboxes, _, err = l.client.anySandboxes(within,
		slices.Sorted(maps.Keys(l.sandboxes))); err != nil {
		return out, err
	}
	over := endedOf(out.Sandboxes)
	out.Containers, err = l.client.listContainers(within, nil, over.keeps)
	if errors.Is(err, ErrTooLarge) {
		over.exited = 0
		out.Containers, err = l.client.listInParts(within, out.Sandboxes, over.keeps)
	}
	if err != nil {
		return out, err
	}
	out.Sandboxes = over.trim(out.Sandboxes, out.Containers)
	done() // what follows is small
	end, _ := within.Deadline()
	ctx, cancel := context.WithDeadline(ctx, end)
	defer cancel()
	l.details(ctx, plan(l.remember(out)))
	for i := range out.Sandboxes {
		s := &out.Sandboxes[i]
		l.sandboxes[s.ID].detail.fill(s)
		s.Refused = s.Refused || l.sandboxes[s.ID].refused
	}
	for i := range out.Containers {
		c := &out.Containers[i]
		if k := l.containers[c.ID]; k != nil {
			k.detail.fill(c)
			c.Refused = k.refused
		}
	}
	return out, nil
}

// remember forgets what is not listed any more, and returns what there may be to ask about the
// rest.
func (l *Lister) remember(now Listing) (asks []ask) {
	sandboxes := map[string]*known[sandboxDetail]{}
	ready := make(map[string]bool, len(now.Sandboxes))
	for _, s := range now.Sandboxes {
		k := carry(l.sandboxes, s.ID)
		sandboxes[s.ID] = k
		ready[s.ID] = s.Ready
		state := k.state // what is known of a sandbox stays true when it ends
		if s.Ready {
			state = Running
		}
		asks = k.due(asks, state, s.Ready, now.Time, refreshSandbox,
			func(ctx context.Context, verbose bool) (sandboxDetail, error) {
				res, err := l.client.sandboxStatus(ctx, s.ID, verbose)
				return sandboxDetailOf(res), l.client.link.wrap("ask status of", err)
			})
	}
	containers, old := map[string]*known[containerDetail]{}, refreshAge
	if l.told {
		old = refreshTold
	}
	for _, c := range now.Containers {
		k := carry(l.containers, c.ID)
		if c.State == Exited && !k.answered && !ready[c.SandboxID] {
			continue
		}
		containers[c.ID] = k
		k.dead = c.State == Exited
		ended := k.dead && k.answered && k.state != Exited && ready[c.SandboxID] // how is not known yet
		wanted, age := !k.dead || !k.answered || ended, old
		if ended { // events do not tell how
			age = refreshAge
		}
		asks = k.due(asks, c.State, wanted, now.Time, age, func(ctx context.Context, verbose bool) (
			containerDetail, error) {
			res, err := l.client.containerStatus(ctx, c.ID, verbose && !ended)
			detail := containerDetailOf(res)
			if ended {
				was := k.detail
				was.ended = detail.ended
				detail = was
			}
			return detail, l.client.link.wrap("ask status of", err)
		})
	}
	l.sandboxes, l.containers = sandboxes, containers
	return asks
}

func carry[D any](old map[string]*known[D], id string) *known[D] {
	if k := old[id]; k != nil {
		return k
	}
	return &known[D]{}
}

// due adds to asks if this is to be asked for: it never was answered, or has another state since,
// or is so old that it may have changed.
func (k *known[D]) due(asks []ask, state ContainerState, alive bool, now time.Time,
	old time.Duration,
	status func(ctx context.Context, verbose bool) (D, error)) []ask {
	urgent := !k.dead && (!k.answered || k.state != state)
	if now.Before(k.notBefore) || !urgent && (!alive || !k.changed && now.Sub(k.asked) < old) {
		return asks
	}
	asked := k.asked
	if k.changed {
		asked = time.Time{}
	}
	return append(asks, ask{asked, urgent, func(ctx context.Context, limit time.Duration) error {
		end, hurried := ctx.Deadline()
		hurried = hurried && time.Until(end) < limit
		within, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		verbose := !k.refused && !now.Before(k.plain)
		detail, err := status(within, verbose)
		if errors.Is(err, ErrTooLarge) && !k.refused {
			k.refused = true
			detail, err = status(within, false)
		}
		if errors.Is(err, ErrTooLarge) { // what is known is that nothing will be
			err = nil
		}
		late := errors.Is(err, context.DeadlineExceeded)
		// the caller's time is over, which says nothing of this one
		if ctx.Err() != nil || hurried && late {
			return context.DeadlineExceeded
		}
		k.asked = now
		if err == nil {
			k.detail, k.answered, k.state, k.changed = detail, true, state, false
			if verbose {
				k.late = 0
			}
		} else if late {
			k.hung(now, verbose)
		} else if k.changed {
			k.notBefore = now.Add(retryAge)
		}
		return err
	}})
}

// hung takes that an answer did not come in time. The second time that the verbose one did not, the
// plain one is asked for instead: a status that a tenant has filled takes a slow runtime seconds.
func (k *known[D]) hung(now time.Time, verbose bool) {
	k.notBefore = now.Add(retryAge)
	if !verbose {
		return
	}
	if k.late++; k.late > 1 {
		k.notBefore, k.plain = now, now.Add(plainAge)
	}
}

// plan puts asks in their order: urgent ones, those never asked first, and then the oldest of the
// others.
func plan(asks []ask) []ask {
	slices.SortStableFunc(asks, func(a, b ask) int {
		if a.urgent != b.urgent {
			if a.urgent {
				return -1
			}
			return 1
		}
		return a.asked.Compare(b.asked)
	})
	urgent := slices.IndexFunc(asks, func(a ask) bool { return !a.urgent })
	if urgent < 0 {
		return asks
	}
	return asks[:min(len(asks), urgent+refreshMax)]
}

// details asks until one is not answered in time: a runtime that hangs costs one deadline a List,
// and since that one comes last the next time, none keeps the others waiting for ever.
func (l *Lister) details(ctx context.Context, asks []ask) {
	for _, a := range asks {
		if errors.Is(a.do(ctx, l.client.timeouts.status), context.DeadlineExceeded) {
			return
		}
	}
}
