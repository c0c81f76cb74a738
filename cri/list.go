package cri

import (
	"cmp"
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
	Incomplete bool        // ready sandboxes without a container may be missing
}

// Intervals for refreshing details. Details of containers can change in place (the kubelet resizes
// pods). A verbose status takes about 0.5 ms. List refreshes at most refreshMax of them, which adds
// at most 16 ms. Details of sandboxes rarely change, and their status takes twice as long. If the
// runtime reports changes (SetEvents), List misses only unsolicited changes by another NRI plugin,
// because the runtime notifies no plugin of them (containerd 2.4.2 internal/nri/nri.go
// applyUpdates).
const (
	refreshAge     = time.Minute
	refreshTold    = 5 * time.Minute
	refreshSandbox = 10 * time.Minute
	refreshMax     = 32
	// retryAge is the delay before a status that timed out is requested again, because another
	// timeout delays the whole List.
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
	// the verbose answer was too large, so only the plain status is requested
	refused bool
	late    int       // consecutive timeouts of the verbose status, or of the plain one once dead
	plain   time.Time // the plain status is requested until then, because the verbose one timed out
	// the container has exited: cached details stay valid, and missing details are not urgent
	dead      bool
	changed   bool           // a change was reported since the answer
	state     ContainerState // listed state when the answer was requested
	asked     time.Time      // last request, even without an answer; zero: never
	notBefore time.Time      // earliest next request
}

// statusRequest is a pending request for a status.
type statusRequest struct {
	lastRequest time.Time // of this status, earlier if a change was reported; zero: never
	urgent      bool      // no details are known, or only details of another state
	do          func(ctx context.Context, limit time.Duration) error
}

// NewLister returns a Lister with an empty cache.
func NewLister(c *Client) *Lister {
	return &Lister{client: c, now: time.Now}
}

// SetEvents sets whether the runtime reports each change of its objects, and the containers
// changed since the last List. List refreshes the details of changed containers as if they were due
// already. If changes are reported, it refreshes those of other containers only every five minutes.
func (l *Lister) SetEvents(reported bool, changed map[string]bool) {
	l.changesReported = reported
	for id := range changed {
		if k := l.containers[id]; k != nil {
			k.changed = true
		}
	}
}

// List lists all sandboxes and all containers, with details.
//
// It requests the details of new sandboxes, of new containers that have not exited, and of
// containers that have started since. It refreshes details of containers after one minute (five
// after SetEvents) and of sandboxes after ten. For containers that have exited in a ready sandbox,
// it requests the details and the end once, because they count in the request of the pod. A List
// makes at most 32 requests that are not urgent.
//
// If a status fails, or the sandbox or container disappears between two calls, the details are
// absent or the cached ones. This is no error, and a later List retries. If a verbose status is too
// large, the sandbox or container is Refused, and its plain status is used from then on. If the
// list of a sandbox's containers is too large, the sandbox is Refused, and the others are still
// listed (see listInParts).
//
// Of pods without a ready sandbox, List returns at most maxEnded exited containers and at most
// maxEnded sandboxes, plus the sandboxes that may be static or have relevant annotations. If the
// list of all sandboxes is too large for one answer, new sandboxes without a container that may run
// can be missing (Incomplete). When ctx ends, or a status times out, List returns the details known
// so far.
func (l *Lister) List(ctx context.Context) (Listing, error) {
	within, done := l.client.link.exclusive(ctx, l.client.timeouts.list)
	defer done()
	out := Listing{Time: l.now()}
	var left Unlisted
	var err error
	if out.Sandboxes, left, err = l.client.anySandboxes(within,
		slices.Sorted(maps.Keys(l.sandboxes))); err != nil {
		return out, err
	}
	out.Incomplete = left.Ready
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
	done() // the answers below are small
	ctx, cancel := context.WithTimeout(ctx, l.client.timeouts.list)
	defer cancel()
	l.details(ctx, plan(l.update(out)))
	l.shareUnified()
	for i := range out.Sandboxes {
		s := &out.Sandboxes[i]
		l.sandboxes[s.ID].detail.fill(s)
		s.Refused = s.Refused || l.sandboxes[s.ID].refused
	}
	for i := range out.Containers {
		c := &out.Containers[i]
		if k := l.containers[c.ID]; k != nil {
			k.detail.fill(c)
			c.Refused, c.Detailed = k.refused, k.answered
		}
	}
	return out, nil
}

// shareUnified lets containers with equal values share one map. A kubelet sets the same value for all
// containers, memory.oom.group, and a map takes 0.4 kB.
func (l *Lister) shareUnified() {
	var shared map[string]string
	for _, k := range l.containers {
		switch unified := &k.detail.resources.unified; {
		case len(*unified) == 0:
		case maps.Equal(*unified, shared):
			*unified = shared
		default:
			shared = *unified
		}
	}
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
		// the container has exited, and its end is not known yet
		ended := k.dead && k.answered && k.state != Exited && ready[c.SandboxID]
		wanted, age := !k.dead || !k.answered || ended, old
		if ended { // events do not report the end
			age = refreshAge
		}
		asks = k.appendDue(asks, c.State, wanted, now.Time, age, func(ctx context.Context, verbose bool) (
			containerDetail, error) {
			res, err := l.client.containerStatus(ctx, c.ID, verbose && !ended)
			detail := containerDetailOf(res)
			detail.root = cmp.Or(detail.root, k.detail.root) // never changes, and the plain status lacks it
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

// appendDue appends a request if the status was never answered, the state or the object has changed
// since, or the answer is older than old.
func (k *remembered[D]) appendDue(asks []statusRequest, state ContainerState, alive bool,
	now time.Time, old time.Duration,
	status func(ctx context.Context, verbose bool) (D, error)) []statusRequest {
	urgent := !k.dead && (!k.answered || k.state != state)
	if now.Before(k.notBefore) || !urgent && (!alive || !k.changed && now.Sub(k.asked) < old) {
		return asks
	}
	asked := k.asked
	if k.changed { // first, but not before objects that wait long because others change all the time
		asked = asked.Add(-old)
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
		// the caller's deadline ended the call, not a slow status
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

// recordTimeout records a timeout. After the second timeout of a verbose request, the caller requests
// the plain status, because a slow runtime needs seconds for a status that a tenant has enlarged. After
// the second one of the plain status of an exited container, it requests none for plainAge.
func (k *remembered[D]) recordTimeout(now time.Time, verbose bool) {
	k.notBefore = now.Add(retryAge)
	if !verbose && !k.dead {
		return
	}
	if k.late++; k.late <= 1 {
		return
	}
	if verbose {
		k.notBefore, k.plain, k.late = now, now.Add(plainAge), 0
	} else {
		k.notBefore = now.Add(plainAge)
	}
}

// plan orders requests: urgent requests first, then the others, each by the time of the last
// request. It drops the requests beyond refreshMax that are not urgent.
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

// details executes requests until one times out, so that a hung runtime delays each List by one
// timeout only. The next List sends the request that timed out last.
func (l *Lister) details(ctx context.Context, asks []statusRequest) {
	for _, a := range asks {
		if errors.Is(a.do(ctx, l.client.timeouts.status), context.DeadlineExceeded) {
			return
		}
	}
}
