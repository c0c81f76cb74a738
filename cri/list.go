package cri

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"
)

// Listing holds all sandboxes and containers of the runtime as of Time, in the runtime's order. It
// is immutable.
type Listing struct {
	Time       time.Time
	Sandboxes  []PodSandbox
	Containers []Container // exited ones too
}

// Intervals for refreshing details. Details of containers can change in place (the kubelet resizes
// pods). A verbose status takes about 0.5 ms: List refreshes a limited number, which adds at most
// 16 ms. Details of sandboxes rarely change, and their status takes twice as long. If the runtime
// reports changes (method SetEvents), only unsolicited changes by another NRI plugin are missed: no
// plugin is notified of them (containerd 2.4.2 internal/nri/nri.go applyUpdates).
const (
	refreshAge     = time.Minute
	refreshTold    = 5 * time.Minute
	refreshSandbox = 10 * time.Minute
	refreshMax     = 32
	// retryAge is the delay before a status that timed out is requested again: it costs its whole
	// timeout.
	retryAge = 10 * time.Second
	// plainAge is the time for which the plain status is requested after the verbose one timed out
	// repeatedly.
	plainAge = time.Hour
)

// Lister lists sandboxes and containers, and caches the details from their verbose statuses. It is
// not safe for concurrent use.
type Lister struct {
	client          *Client
	now             func() time.Time
	sandboxes       map[string]*remembered[sandboxDetail]
	containers      map[string]*remembered[containerDetail]
	changesReported bool // the runtime reports each change
}

// remembered is the cached status of one sandbox or container.
type remembered[D any] struct {
	detail   D
	answered bool // detail is valid
	// the verbose answer was too large and stays so; the plain one is requested since
	refused bool
	late    int       // consecutive timeouts of the verbose status
	plain   time.Time // the plain status is requested until then, because of those
	// an exited container: its cached details stay valid, and missing ones are not urgent
	dead      bool
	changed   bool           // reported as changed since the answer
	state     ContainerState // listed state when the answer was requested
	asked     time.Time      // last request, answered or not; zero: never
	notBefore time.Time      // earliest next request
}

// statusRequest is a pending request for a status.
type statusRequest struct {
	lastRequest time.Time // the last time
	urgent      bool      // no details are known, or only those of another state
	do          func(ctx context.Context, limit time.Duration) error
}

// NewLister returns a Lister with an empty cache.
func NewLister(c *Client) *Lister {
	return &Lister{client: c, now: time.Now}
}

// SetEvents sets whether the runtime reports each change of its objects (told), and the containers
// changed since the last List. If it does, List refreshes the details of changed containers as soon
// as it refreshes any, and others every five minutes.
func (l *Lister) SetEvents(told bool, changed map[string]bool) {
	l.changesReported = told
	for id := range changed {
		if k := l.containers[id]; k != nil {
			k.changed = true
		}
	}
}

// List lists all sandboxes and all containers, with details.
//
// It requests the details of new sandboxes, of new containers that have not exited, and of
// containers that have started since. It refreshes details older than a minute (sandboxes: ten;
// after SetEvents: five). It requests once the details and the end of containers that have exited in a
// ready sandbox, because they count in the request of its pod. The refreshes are limited to 32 per
// List.
//
// A sandbox or container that disappears between two calls, or with a failed status, has no details
// or the cached ones. This is no error, and a later List retries. A sandbox or container with a
// verbose status that is too large is Refused, and its plain status is used from then on. A sandbox
// with a list of containers that is too large is Refused, and does not prevent the listing of
// others (see listInParts).
//
// Of pods without a ready sandbox, at most maxEnded exited containers and at most maxEnded
// sandboxes are listed, plus those that may be static or have relevant annotations. If the list of
// all sandboxes is too large for one answer, only new sandboxes without a container that may run
// can be missing. When ctx ends, or a status times out, List returns the details known so far.
func (l *Lister) List(ctx context.Context) (Listing, error) {
	within, done := l.client.link.exclusive(ctx, l.client.timeouts.list)
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
	done() // the following answers are small
	end, _ := within.Deadline()
	ctx, cancel := context.WithDeadline(ctx, end)
	defer cancel()
	l.details(ctx, plan(l.update(out)))
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

// update drops unlisted objects from the cache and returns the possible status requests for the
// others.
func (l *Lister) update(now Listing) (asks []statusRequest) {
	sandboxes := map[string]*remembered[sandboxDetail]{}
	ready := make(map[string]bool, len(now.Sandboxes))
	for _, s := range now.Sandboxes {
		k := carry(l.sandboxes, s.ID)
		sandboxes[s.ID] = k
		ready[s.ID] = s.Ready
		state := k.state // details of a sandbox stay valid when it ends
		if s.Ready {
			state = Running
		}
		asks = k.appendDue(asks, state, s.Ready, now.Time, refreshSandbox,
			func(ctx context.Context, verbose bool) (sandboxDetail, error) {
				res, err := l.client.sandboxStatus(ctx, s.ID, verbose)
				return sandboxDetailOf(res), l.client.link.wrap("get status of", err)
			})
	}
	containers, old := map[string]*remembered[containerDetail]{}, refreshAge
	if l.changesReported {
		old = refreshTold
	}
	for _, c := range now.Containers {
		k := carry(l.containers, c.ID)
		if c.State == Exited && !k.answered && !ready[c.SandboxID] {
			continue
		}
		containers[c.ID] = k
		k.dead = c.State == Exited
		// its end is not known yet
		ended := k.dead && k.answered && k.state != Exited && ready[c.SandboxID]
		wanted, age := !k.dead || !k.answered || ended, old
		if ended { // events do not report the end
			age = refreshAge
		}
		asks = k.appendDue(asks, c.State, wanted, now.Time, age, func(ctx context.Context, verbose bool) (
			containerDetail, error) {
			res, err := l.client.containerStatus(ctx, c.ID, verbose && !ended)
			detail := containerDetailOf(res)
			if ended {
				cached := k.detail
				cached.ended = detail.ended
				detail = cached
			}
			return detail, l.client.link.wrap("get status of", err)
		})
	}
	l.sandboxes, l.containers = sandboxes, containers
	return asks
}

func carry[D any](old map[string]*remembered[D], id string) *remembered[D] {
	if k := old[id]; k != nil {
		return k
	}
	return &remembered[D]{}
}

// appendDue appends a request if the status was never answered, the state has changed since, or the
// answer is so old that it may be stale.
func (k *remembered[D]) appendDue(asks []statusRequest, state ContainerState, alive bool,
	now time.Time, old time.Duration,
	status func(ctx context.Context, verbose bool) (D, error)) []statusRequest {
	urgent := !k.dead && (!k.answered || k.state != state)
	if now.Before(k.notBefore) || !urgent && (!alive || !k.changed && now.Sub(k.asked) < old) {
		return asks
	}
	asked := k.asked
	if k.changed {
		asked = time.Time{}
	}
	return append(asks, statusRequest{asked, urgent, func(ctx context.Context,
		limit time.Duration) error {
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
		if errors.Is(err, ErrTooLarge) { // the details stay unknown
			err = nil
		}
		late := errors.Is(err, context.DeadlineExceeded)
		// the caller's time has ended, which is no fault of this status
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
			k.recordTimeout(now, verbose)
		} else if k.changed {
			k.notBefore = now.Add(retryAge)
		}
		return err
	}})
}

// recordTimeout records a timeout. After the second timeout of the verbose status the plain one is
// requested instead: a slow runtime needs seconds for a status that a tenant has filled.
func (k *remembered[D]) recordTimeout(now time.Time, verbose bool) {
	k.notBefore = now.Add(retryAge)
	if !verbose {
		return
	}
	if k.late++; k.late > 1 {
		k.notBefore, k.plain = now, now.Add(plainAge)
	}
}

// plan orders requests: urgent ones first, of these the never requested ones first, then the oldest
// of the others.
func plan(asks []statusRequest) []statusRequest {
	slices.SortStableFunc(asks, func(a, b statusRequest) int {
		if a.urgent != b.urgent {
			if a.urgent {
				return -1
			}
			return 1
		}
		return a.lastRequest.Compare(b.lastRequest)
	})
	urgent := slices.IndexFunc(asks, func(a statusRequest) bool { return !a.urgent })
	if urgent < 0 {
		return asks
	}
	return asks[:min(len(asks), urgent+refreshMax)]
}

// details executes requests until one times out: a hung runtime costs one timeout per List. The
// request that timed out is last in the next List, so it does not delay the others forever.
func (l *Lister) details(ctx context.Context, asks []statusRequest) {
	for _, a := range asks {
		if errors.Is(a.do(ctx, l.client.timeouts.status), context.DeadlineExceeded) {
			return
		}
	}
}
