package kubeletdetect

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"jettison/internal/base/atomicfile"
	"jettison/internal/node/bootid"
)

const (
	// Absence is for how long no kubelet may have been seen before one that was counts as gone. What
	// it has left alone for a moment, since it restarts or is upgraded, is not garbage.
	Absence = 10 * time.Minute

	// mostGap is what a time in which nobody looked counts for at most: the agent was stopped, or the
	// machine suspended.
	mostGap = 2 * time.Minute

	// keepStep is how much absence may be lost by a crash: more often it is not written.
	keepStep = 30 * time.Second

	presenceFile    = "kubelet.json"
	presenceVersion = 1
	maxPresence     = 4 << 10 // bytes of the file
)

// presenceState is kubelet.json. It is there from when a kubelet is seen until none was for
// Absence.
type presenceState struct {
	Version int    `json:"version"`
	Boot    string `json:"boot"` // of the kernel, boot_id
	// Looked is when one was last looked for, and Absent for how long none was seen then. Both in
	// nanoseconds, Looked since the boot.
	Looked time.Duration `json:"looked"`
	Absent time.Duration `json:"absent"`
}

// PresenceOptions are those of OpenPresence.
type PresenceOptions struct {
	ProcMount string // empty: /proc
	StateDir  string // for what outlives a restart; empty: nothing does
	ReadOnly  bool   // nothing is written there
}

// Presence says whether a kubelet is on this node. One that was seen is, until none was for
// Absence: it may be starting anew. That is kept over restarts of this program, and goes by the
// time since the boot, which nobody can set. Time in which nobody looks does not count, and a boot
// begins it anew: the kubelet may come up after this program. It is safe for concurrent use.
type Presence struct {
	kubelet func() (found bool, why string)
	uptime  func() time.Duration
	boot    string
	file    string // empty: it is not written
	writing sync.Mutex

	mu     sync.Mutex    // guards all below
	seen   bool          // a kubelet was, and it is not gone yet
	why    string        // by what it was last seen; empty: by a process before this one
	looked time.Duration // since the boot: the last look
	absent time.Duration // for how long none was seen
	kept   presenceState // as it lies on the disk; zero: no file
	tried  bool          // what has changed since was tried to be written
	failed error         // why what was last tried to be written was not
}

// OpenPresence makes a Presence that has not looked yet, with what an earlier process has left in
// StateDir. The error says what was wrong there: that a kubelet was seen is all that is known then.
func OpenPresence(o PresenceOptions) (*Presence, error) {
	finder := new(Finder)
	p := &Presence{
		kubelet: func() (bool, string) { return finder.Kubelet(o.ProcMount) },
		uptime:  bootid.Uptime, boot: bootid.Read(orProc(o.ProcMount)),
	}
	if o.StateDir == "" {
		return p, nil
	}
	file := filepath.Join(o.StateDir, presenceFile)
	if !o.ReadOnly {
		p.file = file
		// another process that writes it at this moment does so again after its next look
		atomicfile.Clean(file)
	}
	return p, p.load(file)
}

// load takes up where an earlier process was.
func (p *Presence) load(file string) error {
	text, err := atomicfile.Read(file, maxPresence, unix.O_NOFOLLOW)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	p.seen, p.looked = true, p.uptime()
	if err != nil {
		return fmt.Errorf("%s: %w: a kubelet that was here counts for %v more", file, errors.Unwrap(err),
			Absence)
	}
	var s presenceState
	if err = json.Unmarshal(text, &s); err == nil && (s.Version != presenceVersion || s.Absent < 0) {
		err = fmt.Errorf("version %d, absent %d: want version %d, and at least 0", s.Version, s.Absent,
			presenceVersion)
	}
	if err != nil {
		return fmt.Errorf("%s: %w: a kubelet that was here counts for %v more", file, err, Absence)
	}
	p.kept = s
	if s.Boot == p.boot && p.boot != "" {
		p.looked, p.absent = min(s.Looked, p.looked), s.Absent
	}
	return nil
}

// Look looks for a kubelet now. found: one is there, or counts still. why says by what, and is the
// same as long as nothing changes. It reads /proc and nothing else: what it learns is written by
// Keep.
func (p *Presence) Look() (found bool, why string) {
	found, why = p.kubelet()
	now := p.uptime()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tried = false
	switch {
	case found:
		p.seen, p.why, p.absent = true, why, 0
	case p.seen:
		p.absent += min(max(now-p.looked, 0), mostGap)
		p.seen = p.absent < Absence
	}
	p.looked = max(p.looked, now)
	if found || !p.seen {
		return found, why
	}
	why = fmt.Sprintf("one was seen less than %v ago", Absence)
	if p.why != "" {
		why += ": " + p.why
	}
	return true, why
}

// Waiting reports whether a kubelet that was seen is not there now, and counts still.
func (p *Presence) Waiting() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seen && p.absent > 0
}

// Unkept reports whether something is to be written that Keep has not tried yet.
func (p *Presence) Unkept() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, changed := p.toKeep()
	return changed && !p.tried
}

// toKeep is what belongs into the file now, and whether it is worth writing. Version 0: no file. mu
// is held.
func (p *Presence) toKeep() (s presenceState, changed bool) {
	if p.seen {
		s = presenceState{Version: presenceVersion, Boot: p.boot, Looked: p.looked, Absent: p.absent}
	}
	changed = s.Version != p.kept.Version || s.Boot != p.kept.Boot ||
		(s.Absent-p.kept.Absent).Abs() >= keepStep ||
		(s.Absent == 0) != (p.kept.Absent == 0)
	return s, changed && p.file != ""
}

// Keep writes what has changed, if anything. It waits for the disk, but not for another Keep.
// Failed tells whether it succeeded.
func (p *Presence) Keep() {
	if !p.writing.TryLock() {
		return
	}
	defer p.writing.Unlock()
	p.mu.Lock()
	s, changed := p.toKeep()
	p.tried = true
	p.mu.Unlock()
	if !changed {
		return
	}
	err := p.write(s)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failed = nil; err != nil {
		p.failed = fmt.Errorf("keep that a kubelet was seen: %w", err)
		return
	}
	p.kept = s
}

// Failed is why what there is to keep could not be kept when that was last tried; nil: it could.
func (p *Presence) Failed() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failed
}

func (p *Presence) write(s presenceState) error {
	if s.Version == 0 {
		if err := os.Remove(p.file); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		return nil
	}
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(p.file), 0o700); err != nil {
		return err
	}
	return atomicfile.Replace(p.file, func(f *os.File) error {
		_, err := f.Write(text)
		return err
	})
}
