package podstore

import (
	"fmt"
	"maps"
	"strings"
	"time"

	"jettison/eviction"
	"jettison/internal/base/podjson"
)

// underway is one Put, with what it takes of the budget until it is over.
type underway struct {
	s      *Store
	by     By
	staged int      // bytes of objects that are not known already
	texts  int      // bytes of memory
	named  []*entry // that are known, or were
}

func (u *underway) end() {
	u.take(-u.staged, -u.texts)
	if len(u.named) == 0 {
		return
	}
	s := u.s
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range u.named {
		if s.again[e]--; s.again[e] == 0 {
			delete(s.again, e)
		}
	}
	_, all := s.clients.memory(u.by)
	s.weigh(all)
}

// known is the entry that a new one equals, whoever put it; nil: there is none. It takes no memory
// a second time, and what it takes counts until the Put is over, whoever replaces it meanwhile.
func (u *underway) known(e *entry) *entry {
	s, uid := u.s, string(e.object.UID)
	known := s.known()
	old := known.same(e)
	s.mu.Lock()
	defer s.mu.Unlock()
	// nobody counts it any more
	if old == nil || s.clients.root[uid] != old && s.clients.members[uid] != old {
		return nil
	}
	s.again[old]++
	u.named = append(u.named, old)
	return old
}

// share has a batch have the entries that its own equal: others may have put the same meanwhile.
func (u *underway) share(batch layer) {
	known := u.s.known()
	for uid, e := range batch {
		done := u.turn()
		if same := known.same(e); same != nil {
			batch[uid] = same
		}
		done()
	}
}

// take takes bytes of objects and of text into account, or no more.
func (u *underway) take(staged, texts int) {
	u.staged += staged
	u.texts += texts
	u.s.staged.Add(int64(staged))
	u.s.texts.Add(int64(texts))
	if u.by == ByRoot {
		u.s.roots.Add(int64(staged + texts))
	}
}

// text takes so many bytes of text into account, which is more than before. A decoder's buffer does
// not shrink.
func (u *underway) text(bytes int) error {
	more := textCosts*(bytes-freeText) - u.texts
	if more <= 0 {
		return nil
	}
	u.take(0, more)
	return u.room()
}

// turn waits until no other pod is decoded. done ends it.
func (u *underway) turn() (done func()) {
	s := u.s
	if u.by == ByRoot {
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

// decode makes an entry of a pod's text, one pod at a time: what a pod takes before it is taken
// into account is there once.
func (u *underway) decode(raw []byte) (*entry, error) {
	defer u.turn()()
	e, err := newEntry(raw)
	if err != nil {
		return nil, err
	}
	if old := u.known(e); old != nil {
		return old, nil
	}
	u.take(e.size, 0)
	return e, u.room()
}

func newEntry(raw []byte) (*entry, error) {
	p, err := podjson.Pod(raw)
	if err != nil {
		return nil, err
	}
	maps.DeleteFunc(p.Annotations,
		func(key, _ string) bool { return strings.HasPrefix(key, kubeletsAnnotations) })
	return &entry{object: p, pod: eviction.NewPod(p), size: podjson.Size(p)}, nil
}

// yieldFor is how long members hand over little after root found no room beside them: longer than
// what they have begun may last, so that root finds some when it tries again.
const yieldFor = 40 * time.Second

// room refuses what does not fit beside what is known and what others put. Members have no more
// than maxBoth for all that, so that root has the rest, and the place of what they have put; and
// what is small fits whatever others do.
func (u *underway) room() error {
	s, root := u.s, u.by == ByRoot
	if u.small() {
		return nil
	}
	beyond := u.beyond()
	if beyond > 0 && root && s.makeWay(beyond) {
		beyond = u.beyond()
	}
	switch {
	case beyond > 0 && u.alone():
		return fmt.Errorf("%w: the agent has %.1f MiB of pods, and no room for so much that is new "+
			"beside them: delete some, or put these in "+
			"parts", ErrFull, float64(s.held.Load())/(1<<20))
	case beyond > 0 && root && s.staged.Load()+s.texts.Load() > s.roots.Load():
		s.yielding.Store(time.Now().Add(yieldFor).UnixNano())
	case beyond > 0, !root && time.Now().UnixNano() < s.yielding.Load():
	default:
		return nil
	}
	return fmt.Errorf("%w: too many pods are being put at the same time", ErrBusy)
}

// small: what others take is no matter.
func (u *underway) small() bool { return u.staged+u.texts <= freeObjects }

// beyond is by how many bytes it does not fit; 0 or less: it does.
func (u *underway) beyond() int64 {
	held, roots := u.s.held.Load(), u.s.roots.Load()
	objects := held + u.s.staged.Load()
	all := objects + u.s.texts.Load()
	own := held + int64(u.staged) - maxObjects
	if u.by == ByRoot && roots <= maxRoots {
		return max(own, held+int64(u.staged+u.texts)-maxAll)
	}
	if u.by == ByRoot {
		return max(own, all-maxAll, objects-maxObjects-maxRoots)
	}
	return max(own, all-maxAll, all-roots-maxBoth, objects-maxObjects-maxRoots,
		objects-roots-maxObjects)
}

// alone: it would not fit if nobody else were handing over anything, either. What members have put
// makes way for root.
func (u *underway) alone() bool {
	own := u.staged + u.texts
	if u.by == ByMember {
		held := int(u.s.held.Load())
		return held+own > maxBoth || held+u.staged > maxObjects
	}
	known := u.s.known()
	held, _ := known.memory(ByRoot)
	return held+own > maxAll || held+u.staged > maxObjects
}

// leastWay is how much makes way at once, in bytes: a snapshot is made each time.
const leastWay = 512 << 10

// makeWay forgets so many bytes of members' objects; false: there are less that would be gone, and
// nothing is forgotten.
func (s *Store) makeWay(bytes int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, before := s.clients.memory(ByRoot)
	next := s.clients.without(s.clients.heaviest(max(int(bytes), leastWay), s.again))
	_, all := next.memory(ByRoot)
	if int64(before-all) < bytes {
		return false
	}
	s.clients = next
	s.weigh(all)
	s.publish()
	return true
}

// Hold takes bytes of memory for a member's answer from the budget, until release is called; false:
// there is no room, and nothing is held.
func (s *Store) Hold(bytes int) (release func(), ok bool) {
	u := &underway{s: s, by: ByMember}
	u.take(0, bytes)
	if u.beyond() > 0 && !u.small() {
		u.end()
		return nil, false
	}
	return u.end, true
}
