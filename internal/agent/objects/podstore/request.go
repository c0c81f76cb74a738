package podstore

import (
	"fmt"
	"maps"
	"strings"
	"time"

	"jettison/eviction"
	"jettison/internal/base/podjson"
)

// request is a Put, Ask or Hold in flight, with its share of the memory budget until release.
type request struct {
	s      *Store
	by     Role
	staged int      // bytes of new objects
	texts  int      // bytes of memory for text
	reused []*entry // pinned objects
}

func (q *request) release() {
	q.charge(-q.staged, -q.texts)
	if len(q.reused) == 0 {
		return
	}
	s := q.s
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range q.reused {
		if s.pinned[e]--; s.pinned[e] == 0 {
			delete(s.pinned, e)
		}
	}
	_, all := s.clients.memory(q.by)
	s.countMemory(all)
}

// reuse returns the known entry that equals e, of either role, and pins it; nil: none. It takes no
// additional memory, and counts until the request ends even if it is replaced meanwhile.
func (q *request) reuse(e *entry) *entry {
	s, uid := q.s, string(e.object.UID)
	known := s.known()
	old := known.same(e)
	s.mu.Lock()
	defer s.mu.Unlock()
	// replaced since: no longer counted
	if old == nil || s.clients.root[uid] != old && s.clients.members[uid] != old {
		return nil
	}
	s.pinned[old]++
	q.reused = append(q.reused, old)
	return old
}

// reuseAll replaces the entries of a batch that equal known ones: other clients may have put them
// since.
func (q *request) reuseAll(batch layer) {
	known := q.s.known()
	for uid, e := range batch {
		done := q.lockDecoder()
		if same := known.same(e); same != nil {
			batch[uid] = same
		}
		done()
	}
}

// charge adds to the request's bytes of objects and text; negative values release them.
func (q *request) charge(staged, texts int) {
	q.staged += staged
	q.texts += texts
	q.s.staged.Add(int64(staged))
	q.s.texts.Add(int64(texts))
	if q.by == ByRoot {
		q.s.roots.Add(int64(staged + texts))
	}
}

// chargeText charges for text of so many bytes, which is more than in the last call. A decoder's
// buffer does not shrink.
func (q *request) chargeText(bytes int) error {
	more := textCosts*(bytes-freeText) - q.texts
	if more <= 0 {
		return nil
	}
	q.charge(0, more)
	return q.checkBudget()
}

// lockDecoder waits until no other pod is decoded. done unlocks it.
func (q *request) lockDecoder() (done func()) {
	s := q.s
	if q.by == ByRoot {
		s.decoding.Lock()
		return s.decoding.Unlock
	}
	s.turns.Lock()
	s.decoding.Lock()
	return func() {
		s.decoding.Unlock()
		s.turns.Unlock()
	}
}

// decode decodes a pod to an entry. Only one pod at a time is decoded, because its memory is
// charged afterwards.
func (q *request) decode(raw []byte) (*entry, error) {
	defer q.lockDecoder()()
	e, err := newEntry(raw, q.by)
	if err != nil {
		return nil, err
	}
	if old := q.reuse(e); old != nil {
		return old, nil
	}
	q.charge(e.size, 0)
	return e, q.checkBudget()
}

// newEntry decodes a client's object. It drops the kubelet's allocation from objects of members.
func newEntry(raw []byte, by Role) (*entry, error) {
	p, err := podjson.Pod(raw)
	if err != nil {
		return nil, err
	}
	if by == ByMember {
		podjson.DropAllocation(p)
	}
	maps.DeleteFunc(p.Annotations,
		func(key, _ string) bool { return strings.HasPrefix(key, kubeletsAnnotations) })
	return &entry{object: p, pod: eviction.NewPod(p), size: podjson.Size(p)}, nil
}

// yieldFor is the time for which members may put little after root got ErrBusy because of them. It
// exceeds the longest request, so that a retry of root succeeds.
const yieldFor = 40 * time.Second

// checkBudget returns an error if the request does not fit next to known objects and other
// requests. Members share maxBoth, so that root has the rest, and root may drop objects of members.
// Small requests always fit.
func (q *request) checkBudget() error {
	s, root := q.s, q.by == ByRoot
	if q.small() {
		return nil
	}
	excess := q.excess()
	if excess > 0 && root && s.dropMembers(excess) {
		excess = q.excess()
	}
	switch {
	case excess > 0 && q.neverFits():
		return fmt.Errorf("%w: the agent holds %.1fMi of pods, which leaves too little memory for "+
			"these: delete some, or put these in parts", ErrFull, float64(s.held.Load())/(1<<20))
	case excess > 0 && root && s.staged.Load()+s.texts.Load() > s.roots.Load():
		s.yielding.Store(time.Now().Add(yieldFor).UnixNano())
	case excess > 0, !root && time.Now().UnixNano() < s.yielding.Load():
	default:
		return nil
	}
	return fmt.Errorf("%w: too many pods in requests of other clients", ErrBusy)
}

// small reports whether the request always fits.
func (q *request) small() bool { return q.staged+q.texts <= freeObjects }

// excess returns the number of bytes by which the request exceeds the budget; 0 or less: it fits.
func (q *request) excess() int64 {
	held, roots := q.s.held.Load(), q.s.roots.Load()
	objects := held + q.s.staged.Load()
	all := objects + q.s.texts.Load()
	own := held + int64(q.staged) - maxObjects
	if q.by == ByRoot && roots <= maxRoots {
		return max(own, held+int64(q.staged+q.texts)-maxAll)
	}
	if q.by == ByRoot {
		return max(own, all-maxAll, objects-maxObjects-maxRoots)
	}
	return max(own, all-maxAll, all-roots-maxBoth, objects-maxObjects-maxRoots,
		objects-roots-maxObjects)
}

// neverFits reports whether the request would exceed the budget even without other requests. For
// root, objects of members do not count, as they are dropped.
func (q *request) neverFits() bool {
	own := q.staged + q.texts
	if q.by == ByMember {
		held := int(q.s.held.Load())
		return held+own > maxBoth || held+q.staged > maxObjects
	}
	known := q.s.known()
	held, _ := known.memory(ByRoot)
	return held+own > maxAll || held+q.staged > maxObjects
}

// minDrop is the least memory that dropMembers frees, in bytes, because each call makes a snapshot.
const minDrop = 512 << 10

// dropMembers drops members' objects of at least so many bytes. If that would free less, it drops
// none and returns false.
func (s *Store) dropMembers(bytes int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, before := s.clients.memory(ByRoot)
	next := s.clients.without(s.clients.victims(max(int(bytes), minDrop), s.pinned))
	_, all := next.memory(ByRoot)
	if int64(before-all) < bytes {
		return false
	}
	s.clients = next
	s.countMemory(all)
	s.publish()
	return true
}

// Hold charges the bytes of an answer to a member until release is called. false: it does not fit,
// and nothing is charged.
func (s *Store) Hold(bytes int) (release func(), ok bool) {
	q := &request{s: s, by: ByMember}
	q.charge(0, bytes)
	if q.excess() > 0 && !q.small() {
		q.release()
		return nil, false
	}
	return q.release, true
}
