// Package kubeletpods reads pods from the kubelet of this node: its local pods API,
// k8s.io/kubelet/pkg/apis/pods/v1alpha1, which a kubelet serves to root on a socket of its own
// where the feature gate PodsAPI is on (v1.36, alpha; pkg/kubelet/apis/pods/server.go). What a
// kubelet tells is exact, and takes no API server.
//
//	kubeletpods.go  Reader: follows the kubelet, beside the loop
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

// Path is where a kubelet's socket is seen below the node's root directory
// (pkg/kubelet/kubelet_getters.go getPodsAPIDir, pkg/kubelet/apis/pods/constants.go Socket, v1.36);
// empty: the kubelet's root directory is not known.
func Path(hostRoot, rootDir string) string {
	if rootDir == "" {
		return ""
	}
	return filepath.Join("/", hostRoot, rootDir, "pods-api", "pods-api.sock")
}

// Store takes what the kubelet tells (*podstore.Store).
type Store interface {
	SetKubelet(pods []*v1.Pod) error // all that there are
	UpdateKubelet(pod *v1.Pod) error
	DropKubelet(uid string)
}

// Options of Start.
type Options struct {
	Socket string // see Path
	Store  Store
	Log    *slog.Logger // the Reader's goroutine writes to it
}

// timing is what tests change.
type timing struct {
	// between two looks for a socket that is not there, and the longest between two attempts
	look  time.Duration
	retry time.Duration // after the first attempt that failed; doubled each time
	sync  time.Duration // for all pods to be told
	// until all are told anew: a kubelet drops events that its readers are too slow for (server.go
	// Broadcast)
	anew time.Duration
}

const (
	maxMessage = 4 << 20 // bytes of one pod as the kubelet has it, its status included
	gather     = 64      // how many pods are gathered until there has to be room for them
)

// Reader follows the kubelet in a goroutine of its own.
type Reader struct {
	cancel context.CancelFunc
	done   chan struct{}
}

// Start starts a Reader. Close it.
func Start(o Options) *Reader {
	return startWith(o, timing{look: 30 * time.Second, retry: time.Second, sync: 30 * time.Second,
		anew: 10 * time.Minute})
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

// Close ends it. What was told stays in the store.
func (r *Reader) Close() {
	r.cancel()
	<-r.done
}

// follower is the Reader's goroutine.
type follower struct {
	Options
	timing
	unread error // why the last pod of this connection that cannot be read cannot; nil: all could
	lacks  bool  // that one cannot be read was said

	tells bool   // the kubelet told all its pods, and nothing went wrong since
	said  string // the last error

	fitted, before podjson.Fitted // what all were cut by, and the last time
}

func (f *follower) run(ctx context.Context) {
	wait := f.retry
	for ctx.Err() == nil {
		_, err := os.Lstat(f.Socket)
		there := err == nil
		if there {
			err = f.follow(ctx)
		}
		rest := f.look
		switch {
		case ctx.Err() != nil:
			return
		case err == nil: // it was time to hear all of it anew
			wait, rest = f.retry, 0
		case there || f.tells:
			f.failed(err)
			rest, wait = wait, retry.Backoff(wait, f.retry, f.look)
			rest += time.Duration(rand.Int64N(int64(rest)/4 + 1))
		case !errors.Is(err, fs.ErrNotExist):
			f.failed(err)
		}
		retry.Sleep(ctx, rest)
	}
}

// failed says once that the kubelet does not tell. What it told counts still: a kubelet that
// restarts makes no pod go.
func (f *follower) failed(err error) {
	if f.said != err.Error() {
		f.said = err.Error()
		f.Log.Warn("the kubelet does not tell of its pods: what it told before counts still",
			api.EventPod.Attr(),
			"socket", f.Socket, "error", err)
	}
	f.tells = false
}

// follow takes all pods and then what changes, until it is time to begin anew (nil), or something
// is wrong.
func (f *follower) follow(ctx context.Context) error {
	f.unread = nil
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
		func() { cancel(fmt.Errorf("not all pods are told within %v", f.sync)) })
	defer late.Stop()
	stream, err := podsv1alpha1.NewPodsClient(conn).WatchPods(ctx, &podsv1alpha1.WatchPodsRequest{})
	if err != nil {
		return cmp.Or(context.Cause(ctx), err)
	}
	all, synced := []*v1.Pod{}, false
	f.fitted = podjson.Fitted{}
	for {
		event, err := stream.Recv()
		switch cause := context.Cause(ctx); {
		case errors.Is(cause, errAnew):
			return nil
		case err != nil:
			return cmp.Or(cause, err)
		case event.Type == podsv1alpha1.EventType_INITIAL_SYNC_COMPLETE && !synced && f.unread != nil &&
			len(all) == 0:
			return f.unread // none can be read
		case event.Type == podsv1alpha1.EventType_INITIAL_SYNC_COMPLETE && !synced:
			late.Stop()
			all = f.fit(all)
			f.cut()
			if err := f.Store.SetKubelet(all); err != nil {
				return err
			}
			all, synced = nil, true
			f.told()
			anew := time.AfterFunc(f.anew, func() { cancel(errAnew) })
			defer anew.Stop()
			continue
		}
		if all, err = f.take(event, all, synced); err != nil {
			return err
		}
	}
}

var errAnew = errors.New("it is time to hear all pods anew")

// told says once that the kubelet tells of its pods.
func (f *follower) told() {
	if !f.tells {
		f.Log.Info("the kubelet tells of its pods", api.EventPod.Attr(), "socket", f.Socket)
	}
	f.tells, f.said = true, ""
	f.lacks = f.unread != nil
}

// skip leaves out a pod that cannot be read, and says so once, until all are told and can be.
func (f *follower) skip(err error) {
	if f.unread = fmt.Errorf("a pod of the kubelet's: %w", err); !f.lacks {
		f.lacks = true
		f.Log.Warn("some of the kubelet's pods cannot be read, and are left out", "socket", f.Socket,
			"error", f.unread)
	}
}

// fit cuts pods to what there is room for: a store that takes none for one that is too large would
// know nobody's priority.
func (f *follower) fit(all []*v1.Pod) []*v1.Pod {
	all, did := podjson.Fit(all)
	f.fitted.Less += did.Less
	f.fitted.Left += did.Left
	return all
}

// cut says that pods were cut, when they were by more than before.
func (f *follower) cut() {
	if f.fitted.Less > f.before.Less || f.fitted.Left > f.before.Left {
		f.Log.Warn("this node's pods are more than there is room for: of the largest it is known who "+
			"they are, and of some nothing",
			"pods", f.fitted.Less, "left", f.fitted.Left)
	}
	f.before = f.fitted
}

// take takes one event; before all is told into all. One pod that cannot be read, or is too large,
// costs none of the others its object: tenants make pods.
func (f *follower) take(event *podsv1alpha1.WatchPodsEvent, all []*v1.Pod, synced bool) ([]*v1.Pod,
	error) {
	switch event.Type {
	case podsv1alpha1.EventType_ADDED, podsv1alpha1.EventType_MODIFIED, podsv1alpha1.EventType_DELETED:
	default: // of a newer kubelet
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
