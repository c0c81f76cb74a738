// Package kubeletpods reads pods from the kubelet of this node through its local pods API,
// k8s.io/kubelet/pkg/apis/pods/v1alpha1. A kubelet serves it to root on a separate socket if the
// feature gate PodsAPI is on, by default since v1.37 (pkg/kubelet/apis/pods/server.go). These pods
// are exact, and need no API server.
//
//	kubeletpods.go  Reader: follows the kubelet, outside the loop
package kubeletpods

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	v1 "k8s.io/api/core/v1"
	podsv1alpha1 "k8s.io/kubelet/pkg/apis/pods/v1alpha1"

	"jettison/api"
	"jettison/internal/base/podjson"
	"jettison/internal/base/retry"
)

// Path returns the path of a kubelet's socket below the node's root directory
// (pkg/kubelet/kubelet_getters.go getPodsAPIDir, pkg/kubelet/apis/pods/constants.go Socket,
// v1.37.2); empty: the kubelet's root directory is unknown.
func Path(hostRoot, rootDir string) string {
	if rootDir == "" {
		return ""
	}
	return filepath.Join("/", hostRoot, rootDir, "pods-api", "pods-api.sock")
}

// Store receives the kubelet's pods (*podstore.Store).
type Store interface {
	SetKubelet(pods []*v1.Pod) error // all pods
	UpdateKubelet(pod *v1.Pod) error
	DropKubelet(uid string)
}

// Options of Start.
type Options struct {
	Socket string // see Path
	Store  Store
	Log    *slog.Logger // used by the Reader's goroutine
}

// timing holds the intervals that tests change.
type timing struct {
	// between two checks for a missing socket, and the longest backoff
	look  time.Duration
	retry time.Duration // first backoff; doubled each time
	sync  time.Duration // timeout for the complete list
	// time between complete lists: a kubelet drops events for slow readers (server.go Broadcast)
	resync time.Duration
}

const (
	maxMessage = 4 << 20 // bytes of one event; the pod includes its status
	gather     = 64      // pods collected before they are reduced to fit
)

// Reader follows the kubelet in a separate goroutine.
type Reader struct {
	cancel context.CancelFunc
	done   chan struct{}
}

// Start starts a Reader. The caller must Close it.
func Start(o Options) *Reader {
	return startWith(o, timing{look: 30 * time.Second, retry: time.Second, sync: 30 * time.Second,
		resync: 10 * time.Minute})
}

func startWith(o Options, t timing) *Reader {
	ctx, cancel := context.WithCancel(context.Background())
	r := &Reader{cancel: cancel, done: make(chan struct{})}
	f := &follower{Options: o, timing: t}
	go func() {
		defer close(r.done)
		f.run(ctx)
	}()
	return r
}

// Close ends the Reader. The pods stay in the store.
func (r *Reader) Close() {
	r.cancel()
	<-r.done
}

// follower is the state of the Reader's goroutine.
type follower struct {
	Options
	timing
	unreadable         error // error of the last unreadable pod of this connection; nil: none
	reportedUnreadable bool  // an unreadable pod is logged

	synced    bool   // the kubelet sent all its pods, and no error followed
	lastError string // the last logged error

	reduced, reducedBefore podjson.Reduction // reductions of this connection, and of the last list
}

func (f *follower) run(ctx context.Context) {
	backoff := f.retry
	for ctx.Err() == nil {
		_, err := os.Lstat(f.Socket)
		exists := err == nil
		if exists {
			err = f.follow(ctx)
		}
		delay := f.look
		switch {
		case ctx.Err() != nil:
			return
		case err == nil: // time for a new list
			backoff, delay = f.retry, 0
		case exists || f.synced:
			f.logUnavailable(err)
			delay, backoff = backoff, retry.Backoff(backoff, f.retry, f.look)
			delay += time.Duration(rand.Int64N(int64(delay)/4 + 1))
		case !errors.Is(err, fs.ErrNotExist):
			f.logUnavailable(err)
		}
		retry.Sleep(ctx, delay)
	}
}

// logUnavailable logs a new error once. The last pods stay in the store: a restart of the kubelet
// ends no pod.
func (f *follower) logUnavailable(err error) {
	if f.lastError != err.Error() {
		f.lastError = err.Error()
		//log: The agent cannot read the kubelet's local pods API. It keeps using the pods it read
		//  last, and retries with backoff.
		//do: Nothing while the kubelet restarts. Otherwise check that the kubelet's feature gate
		//  PodsAPI is on, and see error.
		f.Log.Warn("kubelet pods API unavailable, keeping last pods",
			api.EventPod.Attr(),
			"socket", f.Socket, "error", err)
	}
	f.synced = false
}

// follow reads all pods and then their changes. It returns nil when a new list is due, otherwise an
// error.
func (f *follower) follow(ctx context.Context) error {
	f.unreadable = nil
	conn, err := grpc.NewClient("passthrough:///kubelet",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithAuthority("localhost"), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", f.Socket)
		}))
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	late := time.AfterFunc(f.sync,
		func() { cancel(fmt.Errorf("no complete list of pods within %v", f.sync)) })
	defer late.Stop()
	stream, err := podsv1alpha1.NewPodsClient(conn).WatchPods(ctx, &podsv1alpha1.WatchPodsRequest{})
	if err != nil {
		return cmp.Or(context.Cause(ctx), err)
	}
	all, synced := []*v1.Pod{}, false
	f.reduced = podjson.Reduction{}
	for {
		event, err := stream.Recv()
		switch cause := context.Cause(ctx); {
		case errors.Is(cause, errResync):
			return nil
		case err != nil:
			return cmp.Or(cause, err)
		case event.Type == podsv1alpha1.EventType_INITIAL_SYNC_COMPLETE && !synced && f.unreadable != nil &&
			len(all) == 0:
			return f.unreadable // all are unreadable
		case event.Type == podsv1alpha1.EventType_INITIAL_SYNC_COMPLETE && !synced:
			late.Stop()
			all = f.fit(all)
			f.logReduced()
			if err := f.Store.SetKubelet(all); err != nil {
				return err
			}
			all, synced = nil, true
			f.logSynced()
			resync := time.AfterFunc(f.resync, func() { cancel(errResync) })
			defer resync.Stop()
			continue
		}
		if all, err = f.process(event, all, synced); err != nil {
			return err
		}
	}
}

var errResync = errors.New("new list of pods due")

// logSynced logs once that the kubelet provides its pods.
func (f *follower) logSynced() {
	if !f.synced {
		//log: The agent reads all pods of the node from the kubelet's local pods API, and follows
		//  their changes.
		f.Log.Info("kubelet pods API synced", api.EventPod.Attr(), "socket", f.Socket)
	}
	f.synced, f.lastError = true, ""
	f.reportedUnreadable = f.unreadable != nil
}

// skip records an unreadable pod, and logs it once, until a list is readable.
func (f *follower) skip(err error) {
	if f.unreadable = fmt.Errorf("pod of the kubelet: %w", err); !f.reportedUnreadable {
		f.reportedUnreadable = true
		//log: The kubelet sent a pod that the agent cannot decode, or that is too large. The agent
		//  skips it and any further ones until a complete list is readable.
		//do: See error. An invalid name or a very large pod is a likely cause.
		f.Log.Warn("unreadable kubelet pod skipped", "socket", f.Socket, "error", f.unreadable)
	}
}

// fit reduces pods to the store's limits. The store rejects a list with too large pods as a whole,
// and all priorities would be unknown.
func (f *follower) fit(all []*v1.Pod) []*v1.Pod {
	all, did := podjson.Fit(all)
	f.reduced.Minimal += did.Minimal
	f.reduced.Dropped += did.Dropped
	return all
}

// logReduced logs that pods were reduced, if by more than in the last list.
func (f *follower) logReduced() {
	if f.reduced.Minimal > f.reducedBefore.Minimal || f.reduced.Dropped > f.reducedBefore.Dropped {
		//log: The pods of this node exceed the memory limit for pod objects. The agent keeps only
		//  the identity and priority of the largest ones (pods) and nothing of some (left).
		//do: Find and remove pods with very large specs or annotations, or very many ended pods, on
		//  this node.
		f.Log.Warn("pod objects of this node reduced to fit", "pods", f.reduced.Minimal, "left",
			f.reduced.Dropped)
	}
	f.reducedBefore = f.reduced
}

// process processes one event; before the list is complete it adds to all. An unreadable or too
// large pod does not affect the others, because tenants create pods.
func (f *follower) process(event *podsv1alpha1.WatchPodsEvent, all []*v1.Pod, synced bool) ([]*v1.Pod,
	error) {
	switch event.Type {
	case podsv1alpha1.EventType_ADDED, podsv1alpha1.EventType_MODIFIED, podsv1alpha1.EventType_DELETED:
	default: // an event type of a newer kubelet
		return all, nil
	}
	pod, err := podjson.Protobuf(event.Pod)
	switch {
	case err != nil:
		f.skip(err)
	case event.Type == podsv1alpha1.EventType_DELETED && synced:
		f.Store.DropKubelet(string(pod.UID))
	case synced:
		return all, f.Store.UpdateKubelet(podjson.FitOne(pod))
	case event.Type != podsv1alpha1.EventType_DELETED:
		if all = append(all, podjson.FitOne(pod)); len(all)%gather == 0 {
			all = f.fit(all)
		}
	}
	return all, nil
}
