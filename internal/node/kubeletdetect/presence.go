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
	// Absence is the time without a kubelet after which a kubelet that ran before counts as gone. A
	// kubelet that restarts or is upgraded still needs its files.
	Absence = 10 * time.Minute

	// maxGap bounds the absence that the time between two searches adds: the agent may have been
	// stopped, or the machine suspended.
	maxGap = 2 * time.Minute

	// keepStep is the change of the absence after which it is written again, and so the most that a
	// crash loses.
	keepStep = 30 * time.Second

	presenceFile    = "kubelet.json"
	presenceVersion = 1
	maxPresence     = 4 << 10 // bytes of the file
)

// presenceState is the content of kubelet.json. The file exists from the first sighting of a
// kubelet until none was seen for Absence.
type presenceState struct {
	Version int    `json:"version"`
	Boot    string `json:"boot"` // the kernel's boot_id
	// Looked is the time of the last search, since the boot. Absent is the time without a kubelet
	// until then. Both in nanoseconds.
	Looked time.Duration `json:"looked"`
	Absent time.Duration `json:"absent"`
}

// PresenceOptions are the options of OpenPresence.
type PresenceOptions struct {
	ProcMount string // empty: /proc
	StateDir  string // keeps kubelet.json over restarts; empty: not kept
	ReadOnly  bool   // do not write to StateDir
}

// Presence reports whether a kubelet is on this node. A kubelet counts as present until it is
// absent for Absence, because it may be restarting. This time is kept over restarts of the agent,
// and measured by the time since the boot, which cannot be set. Time without searches does not
// count, and a boot restarts it, because the kubelet may start after the agent. Presence is safe
// for concurrent use.
type Presence struct {
	kubelet func() (found bool, why string)
	uptime  func() time.Duration
	boot    string
	file    string // empty: not written
	writing sync.Mutex

	mu     sync.Mutex    // guards all fields below
	seen   bool          // a kubelet was seen and is not gone yet
	why    string        // evidence of the last sighting; empty: an earlier process saw it
	looked time.Duration // time of the last search, since the boot
	absent time.Duration // time without a kubelet
	kept   presenceState // content of the file; zero: no file
	tried  bool          // Save ran after the last Look
	failed error         // error of the last write
}

// OpenPresence creates a Presence that has not searched yet, with the state of an earlier process
// from StateDir. If the state is unreadable, it returns the error and a Presence that counts a
// kubelet as present.
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
		// another process that is writing the file writes it again after its next search
		atomicfile.Clean(file)
	}
	return p, p.load(file)
}

// load reads the state of an earlier process.
func (p *Presence) load(file string) error {
	text, err := atomicfile.Read(file, maxPresence, unix.O_NOFOLLOW)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	p.seen, p.looked = true, p.uptime()
	if err != nil {
		return fmt.Errorf("%s: %w: a kubelet counts as present for another %v", file, errors.Unwrap(err),
			Absence)
	}
	var s presenceState
	if err = json.Unmarshal(text, &s); err == nil && (s.Version != presenceVersion || s.Absent < 0) {
		err = fmt.Errorf("version %d, absent %d: want version %d and absent at least 0", s.Version, s.Absent,
			presenceVersion)
	}
	if err != nil {
		return fmt.Errorf("%s: %w: a kubelet counts as present for another %v", file, err, Absence)
	}
	p.kept = s
	if s.Boot == p.boot && p.boot != "" {
		p.looked, p.absent = min(s.Looked, p.looked), s.Absent
	}
	return nil
}

// Look searches for a kubelet now. found: a kubelet runs or still counts as present. why is the
// evidence; it does not change while nothing changes. Look reads only /proc; Save writes the
// result.
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
		p.absent += min(max(now-p.looked, 0), maxGap)
		p.seen = p.absent < Absence
	}
	p.looked = max(p.looked, now)
	if found || !p.seen {
		return found, why
	}
	why = fmt.Sprintf("a kubelet was seen less than %v ago", Absence)
	if p.why != "" {
		why += ": " + p.why
	}
	return true, why
}

// Waiting reports whether a kubelet does not run now but still counts as present.
func (p *Presence) Waiting() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seen && p.absent > 0
}

// Unsaved reports whether the state must be written and Save has not tried yet.
func (p *Presence) Unsaved() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, changed := p.toKeep()
	return changed && !p.tried
}

// toKeep returns the state to write, and whether it differs enough to write it. Version 0: no file.
// mu must be held.
func (p *Presence) toKeep() (s presenceState, changed bool) {
	if p.seen {
		s = presenceState{Version: presenceVersion, Boot: p.boot, Looked: p.looked, Absent: p.absent}
	}
	changed = s.Version != p.kept.Version || s.Boot != p.kept.Boot ||
		(s.Absent-p.kept.Absent).Abs() >= keepStep ||
		(s.Absent == 0) != (p.kept.Absent == 0)
	return s, changed && p.file != ""
}

// Save writes the state if it changed. It waits for the disk, but not for another Save. SaveError
// returns its error.
func (p *Presence) Save() {
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
		p.failed = fmt.Errorf("save the presence of a kubelet: %w", err)
		return
	}
	p.kept = s
}

// SaveError returns the error of the last write; nil: it succeeded.
func (p *Presence) SaveError() error {
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
