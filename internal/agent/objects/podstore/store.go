// Package podstore holds the pod objects that are known, from three origins: clients of the agent's
// socket, static manifests, and the kubelet's local pods API. They live in memory only, and stay
// until they are deleted or replaced. A pod that asks to be taken is decoded here, too, and not
// kept.
//
// A client's word ends where the runtime's begins. An object of another pod than the runtime has by
// its UID is refused: it is kept, for the runtime may have been read wrong, but nobody sees it. One
// that comes before its pod waits for that. And no client makes a pod static.
//
// A word of root's stands against one of a member of the socket's group. Both are kept, and of one
// pod root's counts; a manifest's before either. So a member that puts all pods of the node keeps
// them exact, and takes none from root.
//
//	store.go     Store: what is known, and how it changes
//	kubelet.go   what the kubelet tells
//	layers.go    whose word it is: root's, or a member's
//	underway.go  what is being handed over, and the budget of all of that
//	ask.go       a pod that asks whether the node takes it
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

// Bounds of what clients hand over. MaxPods is of root, and of all members together. Nodes are run
// with up to about 1,000 pods, and finished ones are objects too; a client that puts the pods of a
// whole cluster is told so. An ordinary pod takes about 10 KiB of heap, 6.5 of them as podjson.Size
// counts; a change at 2,000 pods takes about half a millisecond (BenchmarkDelete).
const (
	MaxPods   = 2000
	MaxMemory = 8 << 20 // bytes of all objects, as podjson.Size has them
	// maxMembers is how much of that members may take: root can put pods whatever they do.
	maxMembers = 7 << 20
	// maxText is what the largest pod takes while it is read.
	maxText = textCosts * podjson.MaxHeld
	// maxBoth bounds what is known together with what is under way by members: objects, of which there
	// are both until a Put is over, and text that is read or to be sent (Hold). However much is known,
	// there is room for one pod to be read, or to ask.
	maxBoth = MaxMemory + maxText
	// maxAll is the one budget of all that clients have the agent keep, over all their connections.
	// What is beyond maxBoth is root's.
	maxAll = maxBoth + maxRoots
	// maxRoots is what there is for root alone.
	maxRoots = 2 << 20
	// maxObjects bounds the objects in maxBoth: one takes half as much again as is counted, and text
	// takes what is.
	maxObjects = 10 << 20
	// freeText is how much text of one body does not count, and freeObjects how much memory of objects
	// one Put or Ask may take where there is none left: some ordinary pods are put, whatever others
	// do. The socket has 48 connections.
	freeText    = 16 << 10
	freeObjects = 32 << 10
	// textCosts is how many bytes of memory one of a body's takes, see podjson.List.
	textCosts = 3
)

// Errors of Put beside those that say what is wrong with the text, which wrap neither.
var (
	ErrTooLarge = podjson.ErrTooLarge
	ErrFull     = errors.New("full") // of what is known
	ErrBusy     = errors.New("busy") // with what others hand over
)

// Errors of Delete.
var (
	ErrUnknown = errors.New("no client has put it")
	ErrRoots   = errors.New("root has put it: only root may delete it")
)

// Snapshot is what is known at one time. It is never changed, nor may its readers change it.
type Snapshot struct {
	// greater than that of any snapshot before, and the same as long as nothing changes
	Version uint64
	Pods    map[string]*eviction.Pod // by UID
	Objects []*v1.Pod                // trimmed (podjson.Trim), by namespace, name, UID
	Clients int                      // how many of them only clients told of
	Kubelet int                      // how many of them the kubelet told of, and no manifest
	// Members are the UIDs of those that only members of the socket's group have told of: they have no
	// pod killed, and none chosen for what they say of it (docs/reference/socket.md).
	Members map[string]bool
	Refused []Refused // of what clients have put, by UID: neither in Pods nor in Objects
	// Manifests are all static ones, as they were read, those whose pods the runtime does not have yet
	// included. They are not in Objects.
	Manifests []*v1.Pod
}

// Refused is an object that a client has put and that is of another pod than the runtime has by its
// UID.
type Refused struct{ Object, Runtime stats.PodReference }

// Store is safe for concurrent use. Make one with New.
type Store struct {
	snapshot atomic.Pointer[Snapshot]
	changed  chan struct{} // one slot
	decoding sync.Mutex    // held for one pod at a time, so that clients together use one core
	turns    sync.Mutex    // of members: root waits for one of their pods at most
	held     atomic.Int64  // bytes of what clients have handed over
	staged   atomic.Int64  // bytes of objects in Puts under way that are not known, or not any more
	texts    atomic.Int64  // bytes of memory that text of clients takes
	roots    atomic.Int64  // how much of staged and texts is root's
	// until when members hand over little, in nanoseconds of Unix: root was told ErrBusy
	yielding atomic.Int64

	mu        sync.Mutex
	clients   layers
	manifests []*v1.Pod
	runtime   read.Index
	refused   []Refused          // of clients, by UID
	heard     time.Time          // when a client put or deleted last; zero: none has
	synced    time.Time          // when one put all that there are
	matched   map[string]*v1.Pod // manifests by the UID that the runtime knows their pods by
	static    layer              // what becomes of them
	kubelet   layer              // what the kubelet tells
	told      time.Time          // when it told all of it last; zero: never
	again     map[*entry]int     // known objects that Puts under way name again, by how many
	orphans   int                // bytes of these that are not known any more: they are staged
}

// entry is one object. It is never changed.
type entry struct {
	object *v1.Pod
	pod    *eviction.Pod
	size   int // bytes
}

// New makes an empty store.
func New() *Store {
	s := &Store{changed: make(chan struct{}, 1), again: map[*entry]int{}}
	s.snapshot.Store(&Snapshot{Pods: map[string]*eviction.Pod{}})
	return s
}

// Snapshot is what is known now. It never blocks.
func (s *Store) Snapshot() *Snapshot { return s.snapshot.Load() }

// Changed gets a value when there is a newer snapshot than at the last receive.
func (s *Store) Changed() <-chan struct{} { return s.changed }

// Put reads a list of pods (podjson.List) and adds them, or puts them in the place of all that was
// handed over before: where a member does that, by members. A pod whose UID is known replaces that
// one, unless that is root's and this a member's. It is all or nothing: after an error nothing has
// changed, but that objects of members' may have made way for root's. Errors name the pod, and wrap
// ErrTooLarge (no store would take this), ErrFull (there is no room beside what is known: delete
// some), ErrBusy (too much is being put by others: try again) or the reader's.
func (s *Store) Put(r io.Reader, replace bool, by By) (pods int, version uint64, err error) {
	batch, memory := layer{}, 0
	u := &underway{s: s, by: by}
	defer u.end()
	err = podjson.List(r, u.text, func(_ int, raw []byte) error {
		if len(batch) == MaxPods {
			return fmt.Errorf("%w: the agent takes %d pods, those of one node", ErrTooLarge, MaxPods)
		}
		e, err := u.decode(raw)
		if err != nil {
			return err
		}
		if _, twice := batch[string(e.object.UID)]; twice {
			return fmt.Errorf("metadata.uid: %q is a second time in the list", e.object.UID)
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
	u.share(batch)
	version, err = s.apply(batch, replace, by)
	return len(batch), version, err
}

// known is what clients have handed over. To compare with it takes no lock.
func (s *Store) known() layers {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.clients
}

// errMemory is why a body is refused that has more than there is room for.
func errMemory(by By) error {
	if by == ByRoot {
		return fmt.Errorf("%w: the agent has room for %d MiB of pods", ErrTooLarge, MaxMemory>>20)
	}
	return fmt.Errorf("%w: the agent has room for %d MiB of pods that members of socketGroup put",
		ErrTooLarge, maxMembers>>20)
}

// errFull is why one is that would have, with what is known, so many bytes of pods.
func errFull(room, bytes int, whose string) error {
	return fmt.Errorf("%w: the agent has room for %d MiB of pods%s, and would have %.1f: delete "+
		"those that are gone, or put all that there "+
		"are with replace=true", ErrFull, room>>20, whose, float64(bytes)/(1<<20))
}

// kubeletsAnnotations say that a pod is static or a mirror. The runtime has them from the kubelet,
// and a manifest is given them here.
const kubeletsAnnotations = "kubernetes.io/config."

// apply makes a batch known. What is the same as before stays, so that readers see a new version
// only when there is one. What is too much with root's are members' objects.
func (s *Store) apply(batch layer, replace bool, by By) (version uint64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next, changed := s.clients.with(batch, replace, by)
	own, all := next.memory(by)
	switch pods := len(*next.of(by)); {
	case pods > MaxPods:
		return 0, fmt.Errorf("%w: the agent takes %d pods, those of one node, and would have %d: "+
			"delete those that are gone, or put all that "+
			"there are with replace=true", ErrFull, MaxPods, pods)
	case by == ByRoot && own > MaxMemory:
		return 0, errFull(MaxMemory, own, "")
	case own > by.memory():
		return 0, errFull(maxMembers, own, " that members of socketGroup put")
	case by == ByRoot && all > MaxMemory:
		next = next.without(next.heaviest(all-MaxMemory, nil))
		_, all = next.memory(by)
	case all > MaxMemory:
		return 0, errFull(MaxMemory, all, "")
	}
	s.clients = next
	s.weigh(all)
	if s.heard = time.Now(); replace {
		s.synced = s.heard
	}
	if changed {
		s.publish()
	}
	return s.Snapshot().Version, nil
}

// Delete forgets a pod: for root whoever has handed it over, for a member where a member has. A
// client cannot delete a manifest's. It returns ErrUnknown or ErrRoots, or nil.
func (s *Store) Delete(uid string, by By) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	next, err := s.clients.delete(uid, by)
	if err != nil {
		return err
	}
	s.clients, s.heard = next, time.Now()
	_, all := next.memory(by)
	s.weigh(all)
	s.publish()
	return nil
}

// Heard is when a client was heard last, and when one last put all pods that there are; zero: none
// has.
func (s *Store) Heard() (heard, synced time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.heard, s.synced
}

// weigh takes into account what the known objects take, and those that only a Put under way refers
// to any more. The lock is held.
func (s *Store) weigh(all int) {
	orphans := 0
	for e := range s.again {
		if uid := string(e.object.UID); s.clients.root[uid] != e && s.clients.members[uid] != e {
			orphans += e.size
		}
	}
	s.held.Store(int64(all))
	s.staged.Add(int64(orphans - s.orphans))
	s.orphans = orphans
}

// SetManifests replaces the static manifests that are known, which the store does not change.
func (s *Store) SetManifests(all []*v1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.manifests = all
	s.bind()
	if !slices.Equal(s.Snapshot().Manifests, all) {
		s.publish()
	}
}

// SetRuntime tells which pods the runtime has: a manifest becomes an object when its pod is among
// them, and a client's object is refused when it is of another one. Where nothing changed it takes
// microseconds.
func (s *Store) SetRuntime(index read.Index) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.runtime = index
	s.bind()
}

// bind finds the manifests' pods, and those of clients' objects. The lock is held.
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

// refuse finds the clients' objects that are of other pods than the runtime has by their UIDs. The
// lock is held.
func (s *Store) refuse() []Refused {
	s.refused = nil
	for _, layer := range s.clients.all() {
		for uid, e := range layer {
			if s.isRefused(e) {
				s.refused = append(s.refused, Refused{Object: e.pod.Ref, Runtime: s.runtime[uid].PodRef})
			}
		}
	}
	slices.SortFunc(s.refused, func(a, b Refused) int {
		return cmp.Or(strings.Compare(a.Runtime.UID, b.Runtime.UID), strings.Compare(a.Object.Namespace,
			b.Object.Namespace),
			strings.Compare(a.Object.Name, b.Object.Name))
	})
	s.refused = slices.Compact(s.refused) // root and a member may say the same
	return s.refused
}

func (s *Store) isRefused(e *entry) bool {
	p := s.runtime[string(e.object.UID)]
	return p != nil && !e.pod.Names(p.PodRef)
}

// publish makes a snapshot of what is known. Manifests come before what the kubelet tells of the
// same pod, that before what clients say, and root's word before a member's. One that is refused is
// nobody's. The lock is held.
func (s *Store) publish() {
	most := len(s.clients.root) + len(s.clients.members) + len(s.static) + len(s.kubelet)
	next := &Snapshot{
		Version: s.Snapshot().Version + 1, Pods: make(map[string]*eviction.Pod, most),
		Objects: make([]*v1.Pod, 0, most),
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
	default: // told already
	}
}
