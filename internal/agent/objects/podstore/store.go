// Package podstore holds the known pod objects of three sources: clients of the agent's socket,
// static manifests, and the kubelet's local pods API. They live in memory only, until they are
// deleted or replaced. A pod of an admission request is decoded here, too, but not kept.
//
// The runtime overrides clients. An object with the UID of another pod of the runtime is rejected:
// it is kept, in case the runtime was misread, but not published. An object may arrive before its
// pod. No client can make a pod static.
//
// Root overrides members of the socket's group. The store keeps both objects of a pod and publishes
// root's; a manifest's overrides both. So a member that puts all pods of the node keeps them
// current, and replaces none of root's.
//
//	store.go      Store: the known objects and their changes
//	kubelet.go    objects of the kubelet
//	layers.go     objects of root and of members
//	request.go    requests in flight and their memory budget
//	admission.go  pods of admission requests
package podstore

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"

	"jettison/eviction"
	"jettison/internal/base/podjson"
	"jettison/internal/node/manifests"
	"jettison/stats"
	"jettison/stats/read"
)

// Bounds of the objects of clients. MaxPods applies to root, and to all members together. Nodes run
// up to about 1,000 pods, and ended pods have objects too; a client that puts the pods of a whole
// cluster gets an error. An ordinary pod takes about 10 KiB of heap, 6.5 of them as podjson.Size
const (
	MaxPods   = 2000
	MaxMemory = 8 << 20 // bytes of all objects, by podjson.Size
	// maxMembers is the share of members: root can always put pods.
	maxMembers = 7 << 20
	// maxText is the memory for the largest pod while it is decoded.
	maxText = textCosts * podjson.MaxHeld
	// maxBoth bounds known objects plus requests of members in flight: both objects of a pod exist
	// until a Put ends, and text is read or sent (Hold). However many objects are known, one pod
	// can be read or admitted.
	maxBoth = MaxMemory + maxText
	// maxAll is the total budget of data that clients make the agent hold, over all their
	// connections. The part beyond maxBoth is for root only.
	maxAll = maxBoth + maxRoots
	// maxRoots is the part for root only.
	maxRoots = 2 << 20
	// maxObjects bounds the objects in maxBoth: an object takes half as much again as its counted
	// size, text exactly its counted size.
	maxObjects = 10 << 20
	// The first freeText bytes of a body do not count, and one Put or Ask may always use
	// freeObjects bytes: a few ordinary pods can be put regardless of other clients. The socket has
	// 48 connections.
	freeText    = 16 << 10
	freeObjects = 32 << 10
	// textCosts is the number of bytes in memory for a byte of text, see podjson.List.
	textCosts = 3
)

// Errors of Put, in addition to errors about the text, which wrap none of these.
var (
	ErrTooLarge = podjson.ErrTooLarge
	ErrFull     = errors.New("full") // of known objects
	ErrBusy     = errors.New("busy") // with requests of others
)

// Errors of Delete.
var (
	ErrUnknown     = errors.New("no client provided it")
	ErrOwnedByRoot = errors.New("root provided it: only root may delete it")
)

// Snapshot holds the known objects at one time. It never changes, and readers must not change it.
type Snapshot struct {
	// greater than that of any earlier snapshot, and unchanged while nothing changes
	Version uint64
	Pods    map[string]*eviction.Pod // by UID
	Objects []*v1.Pod                // trimmed (podjson.Trim), by namespace, name, UID
	Clients int                      // number of objects that only clients provided
	Kubelet int                      // number of objects from the kubelet and not from a manifest
	// Members are the UIDs of objects that only members of the socket's group provided. They cannot
	// cause a preemption or the choice of its victims. In evictions their priorities, requests and
	// storage limits count, as far as runtime and kernel do not contradict them
	// (docs/reference/socket.md).
	Members map[string]bool
	Refused []Rejected // rejected objects of clients, by UID; neither in Pods nor in Objects
	// Manifests are all static manifests as read, also those whose pods the runtime does not have
	// yet. They are not in Objects.
	Manifests []*v1.Pod
}

// Rejected is a rejected object of a client: the runtime has another pod with its UID.
type Rejected struct{ Object, Runtime stats.PodReference }

// Store holds pod objects. It is safe for concurrent use. Create it with New.
type Store struct {
	snapshot atomic.Pointer[Snapshot]
	changed  chan struct{} // one slot
	decoding sync.Mutex    // held while one pod is decoded, so that all clients together use one core
	turns    sync.Mutex    // taken by members first, so that root waits for at most one of their pods
	held     atomic.Int64  // bytes of the known objects of clients
	staged   atomic.Int64  // bytes of objects of requests in flight that are not known, or no longer
	texts    atomic.Int64  // bytes of memory that text of clients takes
	roots    atomic.Int64  // root's share of staged and texts
	// time in nanoseconds of Unix until which members may put little, because root got ErrBusy
	yielding atomic.Int64

	mu            sync.Mutex
	clients       layers
	manifests     []*v1.Pod
	runtime       read.Index
	refused       []Rejected         // of clients, by UID
	heard         time.Time          // last put or delete of a client; zero: none
	synced        time.Time          // last put with replace
	matched       map[string]*v1.Pod // manifests by the UID that the runtime knows their pods by
	static        layer              // the objects of the matched manifests
	kubelet       layer              // the objects of the kubelet
	kubeletSynced time.Time          // last complete list from the kubelet; zero: none
	pinned        map[*entry]int     // known objects that requests in flight reuse, with the number of requests
	orphans       int                // bytes of pinned objects that are no longer known; they count as staged
}

// entry is one object. It never changes.
type entry struct {
	object *v1.Pod
	pod    *eviction.Pod
	size   int // bytes
}

// New returns an empty store.
func New() *Store {
	s := &Store{changed: make(chan struct{}, 1), pinned: map[*entry]int{}}
	s.snapshot.Store(&Snapshot{Pods: map[string]*eviction.Pod{}})
	return s
}

// Snapshot returns the current snapshot. It never blocks.
func (s *Store) Snapshot() *Snapshot { return s.snapshot.Load() }

// Changed receives a value when a newer snapshot than at the last receive exists.
func (s *Store) Changed() <-chan struct{} { return s.changed }

// Put reads a list of pods (podjson.List) and adds them. With replace they replace all earlier
// objects of clients; for a member, all of members. A pod with a known UID replaces its object,
// unless that is root's and the client a member. Put changes nothing after an error, except that
// objects of members may have been dropped for root's. Errors name the pod. They wrap ErrTooLarge
// (never accepted), ErrFull (delete some), ErrBusy (too many requests in flight, retry) or the
// error of the reader.
func (s *Store) Put(r io.Reader, replace bool, by Role) (pods int, version uint64, err error) {
	batch, memory := layer{}, 0
	q := &request{s: s, by: by}
	defer q.release()
	err = podjson.List(r, q.chargeText, func(_ int, raw []byte) error {
		if len(batch) == MaxPods {
			return fmt.Errorf("%w: the limit is %d pods, those of one node", ErrTooLarge, MaxPods)
		}
		e, err := q.decode(raw)
		if err != nil {
			return err
		}
		if _, twice := batch[string(e.object.UID)]; twice {
			return fmt.Errorf("metadata.uid: %q occurs twice in the list", e.object.UID)
		}
		batch[string(e.object.UID)] = e
		if memory += e.size; memory > by.memory() {
			return errMemory(by)
		}
		return nil
	})
	if err != nil {
		return 0, 0, err
	}
	q.reuseAll(batch)
	version, err = s.apply(batch, replace, by)
	return len(batch), version, err
}

// known returns the objects of clients. Comparing with them needs no lock.
func (s *Store) known() layers {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.clients
}

// errMemory returns the error for a body that exceeds the limit of one client.
func errMemory(by Role) error {
	if by == ByRoot {
		return fmt.Errorf("%w: the limit is %dMi of pods", ErrTooLarge, MaxMemory>>20)
	}
	return fmt.Errorf("%w: the limit is %dMi of pods from members of socketGroup",
		ErrTooLarge, maxMembers>>20)
}

// errFull returns the error for a body with which the known pods would exceed a limit in bytes.
func errFull(limit, bytes int, origin string) error {
	return fmt.Errorf("%w: the limit is %dMi of pods%s, with these there would be %.1fMi: delete "+
		"the pods that no longer exist, or put all pods with replace=true", ErrFull, limit>>20,
		origin, float64(bytes)/(1<<20))
}

// kubeletsAnnotations is the prefix of annotations that mark static and mirror pods. The runtime
// has them from the kubelet, and manifests get them here.
const kubeletsAnnotations = "kubernetes.io/config."

// apply adds a batch to the known objects. Equal objects stay, so that the version changes only
// with the content. If root's exceed the limit, objects of members are dropped.
func (s *Store) apply(batch layer, replace bool, by Role) (version uint64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next, changed := s.clients.with(batch, replace, by)
	own, all := next.memory(by)
	switch pods := len(*next.of(by)); {
	case pods > MaxPods:
		return 0, fmt.Errorf("%w: the limit is %d pods, those of one node, with these there would be "+
			"%d: delete the pods that no longer exist, or put all pods with replace=true", ErrFull,
			MaxPods, pods)
	case by == ByRoot && own > MaxMemory:
		return 0, errFull(MaxMemory, own, "")
	case own > by.memory():
		return 0, errFull(maxMembers, own, " from members of socketGroup")
	case by == ByRoot && all > MaxMemory:
		next = next.without(next.victims(all-MaxMemory, nil))
		_, all = next.memory(by)
	case all > MaxMemory:
		return 0, errFull(MaxMemory, all, "")
	}
	s.clients = next
	s.countMemory(all)
	if s.heard = time.Now(); replace {
		s.synced = s.heard
	}
	if changed {
		s.publish()
	}
	return s.Snapshot().Version, nil
}

// Delete removes a pod: for root from all objects of clients, for a member from those of members.
// It does not remove a manifest. It returns ErrUnknown, ErrOwnedByRoot or nil.
func (s *Store) Delete(uid string, by Role) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	next, err := s.clients.delete(uid, by)
	if err != nil {
		return err
	}
	s.clients, s.heard = next, time.Now()
	_, all := next.memory(by)
	s.countMemory(all)
	s.publish()
	return nil
}

// ClientTimes returns the time of the last put or delete of a client, and of the last put with
// replace; zero: none.
func (s *Store) ClientTimes() (heard, synced time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.heard, s.synced
}

// countMemory updates the memory of the known objects, and of pinned objects that are no longer
// known. The lock is held.
func (s *Store) countMemory(all int) {
	orphans := 0
	for e := range s.pinned {
		if uid := string(e.object.UID); s.clients.root[uid] != e && s.clients.members[uid] != e {
			orphans += e.size
		}
	}
	s.held.Store(int64(all))
	s.staged.Add(int64(orphans - s.orphans))
	s.orphans = orphans
}

// SetManifests replaces the static manifests. The store does not change them.
func (s *Store) SetManifests(all []*v1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.manifests = all
	s.bind()
	if !slices.Equal(s.Snapshot().Manifests, all) {
		s.publish()
	}
}

// SetRuntime sets the pods of the runtime: a manifest becomes an object when its pod exists, and a
// client's object with the UID of another pod is rejected. Without a change it takes microseconds.
func (s *Store) SetRuntime(index read.Index) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.runtime = index
	s.bind()
}

// bind matches manifests and clients' objects with the runtime's pods. The lock is held.
func (s *Store) bind() {
	matched := manifests.Match(s.manifests, s.runtime)
	if maps.Equal(matched, s.matched) {
		if before := s.refused; !slices.Equal(s.refuse(), before) {
			s.publish()
		}
		return
	}
	s.matched, s.static = matched, layer{}
	for uid, m := range matched {
		p := manifests.Static(m, s.runtime[uid].PodRef)
		s.static[uid] = &entry{object: p, pod: eviction.NewManifestPod(p), size: podjson.Size(p)}
	}
	s.publish()
}

// refuse finds the clients' objects with the UID of another pod of the runtime. The lock is held.
func (s *Store) refuse() []Rejected {
	s.refused = nil
	for _, layer := range s.clients.all() {
		for uid, e := range layer {
			if s.isRefused(e) {
				s.refused = append(s.refused, Rejected{Object: e.pod.Ref, Runtime: s.runtime[uid].PodRef})
			}
		}
	}
	slices.SortFunc(s.refused, func(a, b Rejected) int {
		return cmp.Or(strings.Compare(a.Runtime.UID, b.Runtime.UID), strings.Compare(a.Object.Namespace,
			b.Object.Namespace),
			strings.Compare(a.Object.Name, b.Object.Name))
	})
	s.refused = slices.Compact(s.refused) // root and a member may have equal objects
	return s.refused
}

func (s *Store) isRefused(e *entry) bool {
	p := s.runtime[string(e.object.UID)]
	return p != nil && !e.pod.Names(p.PodRef)
}

// publish makes a new snapshot. For each pod the first of these counts: manifest, kubelet, root,
// member. Rejected objects are left out. The lock is held.
func (s *Store) publish() {
	count := len(s.clients.root) + len(s.clients.members) + len(s.static) + len(s.kubelet)
	next := &Snapshot{
		Version: s.Snapshot().Version + 1, Pods: make(map[string]*eviction.Pod, count),
		Objects: make([]*v1.Pod, 0, count),
		Members: map[string]bool{}, Refused: s.refuse(), Manifests: s.manifests,
	}
	for _, layer := range append([]layer{s.static, s.kubelet}, s.clients.all()...) {
		for uid, e := range layer {
			if next.Pods[uid] == nil && (s.static[uid] == e || !s.isRefused(e)) {
				next.Pods[uid] = e.pod
				next.Objects = append(next.Objects, e.object)
				next.Members[uid] = true
			}
		}
	}
	for _, layer := range []layer{s.static, s.kubelet, s.clients.root} {
		for uid, e := range layer {
			if next.Pods[uid] == e.pod {
				delete(next.Members, uid)
			}
		}
	}
	for uid, e := range s.kubelet {
		if next.Pods[uid] == e.pod {
			next.Kubelet++
		}
	}
	next.Clients = len(next.Objects) - len(s.static) - next.Kubelet
	slices.SortFunc(next.Objects, func(a, b *v1.Pod) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name),
			strings.Compare(string(a.UID), string(b.UID)))
	})
	s.snapshot.Store(next)
	select {
	case s.changed <- struct{}{}:
	default: // a value is pending
	}
}
