package records

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"jettison/api"
	"jettison/internal/base/atomicfile"
	"jettison/internal/base/retry"
)

// Options of a Writer. The zero value of a bound is the default.
type Options struct {
	Dir    string // the state directory; empty: nothing is kept but in the kernel's log
	Kmsg   string // the kernel's log; empty: Kmsg
	BootID string // as bootid.Read has it, for records and state
	Agent  string // this version
	// Bytes and Records bound the file of records. Default 4 MiB, 1000.
	Bytes   int64
	Records int
	Queue   int           // records that wait to be written; default 64
	Retry   time.Duration // after something could not be written; default 5 s
	// Report is called when something cannot be written, and when it can be again, from Start and from
	// the Writer's own goroutine. It must not block. nil: it is not told.
	Report func(Notice)
}

// Notice is what a Writer has to say. Each trouble is said once.
type Notice struct {
	What string // records, state, kernel log
	Err  error  // nil: it is written again
	Lost int    // records that were given up meanwhile, the oldest ones
}

// Writer writes records, the state and lines of the kernel's log on one goroutine of its own. It
// never blocks the caller that hands them over: a disk that hangs or is full costs the oldest
// records beyond what may wait. Close it.
type Writer struct {
	o       Options
	wake    chan struct{} // one slot
	done    chan struct{}
	foreign error
	dropped atomic.Uint64 // records given up since the start

	mu     sync.Mutex
	queue  []*entry // oldest first
	state  *State   // the newest one that is not written; nil: none
	lost   int      // records given up since it was last said
	gone   string   // the newest ID of those; empty: the file says so, or there are none
	batch  []string // IDs of what is being written
	closed bool

	// Of the goroutine.
	lock      *os.File // of the directory; nil: not held
	kmsg      *os.File // nil: it cannot be written
	journal   journal
	saved     []byte // the state as it lies on the disk, but for its time; nil: not known
	troubles  [3]string
	unwritten error // of the last round
}

// entry is a record that waits.
type entry struct {
	record api.Record
	kmsg   bool // a line in the kernel's log as well
}

// What may be in trouble, as indices of troubles.
const (
	toRecords = iota
	toState
	toKmsg
)

var troubleNames = [...]string{"records", "state", "kernel log"}

// lockFile is in the state directory, of the one process that writes there.
const lockFile = "agent.lock"

// another is what a second agent has to say.
func another(dir string, err error) error {
	who := "another agent"
	if locked := (*atomicfile.LockedError)(nil); errors.As(err, &locked) && locked.PID != 0 {
		who = fmt.Sprintf("another agent (pid %d)", locked.PID)
	}
	return fmt.Errorf("%s: %s keeps its records and state there: stop it, or give this one another stateDir", dir, who)
}

// acquire takes the directory's lock: two agents would take each other's evictions for their own.
// An error: another process has it. Where there can be no lock, what is written says what is wrong.
func (w *Writer) acquire() error {
	if w.o.Dir == "" || w.lock != nil || os.MkdirAll(w.o.Dir, 0o700) != nil {
		return nil
	}
	var err error
	if w.lock, err = atomicfile.Lock(filepath.Join(w.o.Dir, lockFile)); errors.Is(err,
		atomicfile.ErrLocked) {
		return another(w.o.Dir, err)
	}
	if err == nil {
		for _, name := range []string{StateFile, File} {
			atomicfile.Clean(filepath.Join(w.o.Dir, name))
		}
	}
	return nil
}

// Start starts a Writer. It opens the kernel's log and takes the directory's lock; what else is
// wrong with the directory is found out at the first write. While another process has the lock
// nothing is written, and what lies there is its own.
func Start(o Options) (*Writer, error) {
	if o.Bytes < 0 || o.Records < 0 || o.Queue < 0 || o.Retry < 0 {
		return nil, errors.New("records: a bound is negative")
	}
	if o.Dir != "" && !filepath.IsAbs(o.Dir) {
		return nil, fmt.Errorf("records: %q: want an absolute path", o.Dir)
	}
	o.Kmsg = cmp.Or(o.Kmsg, Kmsg)
	o.Bytes = cmp.Or(o.Bytes, maxBytes)
	o.Records = cmp.Or(o.Records, maxRecords)
	o.Queue = cmp.Or(o.Queue, 64)
	o.Retry = cmp.Or(o.Retry, 5*time.Second)
	if o.Report == nil {
		o.Report = func(Notice) {}
	}
	w := &Writer{o: o, wake: make(chan struct{}, 1), done: make(chan struct{}),
		journal: newJournal(o.Dir, &o)}
	var err error
	if w.kmsg, err = openKmsg(o.Kmsg); err != nil {
		w.said(toKmsg, err)
	}
	err = w.acquire()
	w.said(toState, err)
	w.foreign = err
	go w.run()
	return w, nil
}

// Foreign says which other process had the directory's lock when this one started; nil: none had.
func (w *Writer) Foreign() error { return w.foreign }

// Begin hands over the record of an eviction that has begun, and has a line written to the kernel's
// log. The Writer owns what the record points to.
func (w *Writer) Begin(r api.Record) { w.put(&entry{r, true}) }

// Update hands over the same record, whole, with what is known by now. The Writer owns what the
// record points to.
func (w *Writer) Update(r api.Record) { w.put(&entry{r, false}) }

// Save hands over what the next process needs, in place of what was handed over before. The Writer
// owns what it points to. One that says the same as the one before is not written again.
func (w *Writer) Save(s State) {
	w.mu.Lock()
	if !w.closed {
		w.state = &s
	}
	w.mu.Unlock()
	w.poke()
}

func (w *Writer) put(e *entry) {
	w.mu.Lock()
	if !w.closed {
		w.enqueue(e)
	}
	w.mu.Unlock()
	w.poke()
}

// enqueue takes a record instead of what waits of the same eviction; of too many the oldest is
// given up. mu is held.
func (w *Writer) enqueue(e *entry) {
	for i, old := range w.queue {
		if old.record.ID == e.record.ID {
			e.kmsg = e.kmsg || old.kmsg
			w.queue[i] = e
			return
		}
	}
	w.queue = append(w.queue, e)
	w.trim()
}

func (w *Writer) trim() {
	if over := len(w.queue) - w.o.Queue; over > 0 {
		w.lost += over
		w.dropped.Add(uint64(over))
		for _, e := range w.queue[:over] {
			w.gone = max(w.gone, e.record.ID)
		}
		w.queue = append(w.queue[:0], w.queue[over:]...)
	}
}

// missing are the IDs of records that wait to be written, and the newest of those that were given
// up and of which the file does not say so.
func (w *Writer) missing() (waiting []string, gone string) {
	if w == nil {
		return nil, ""
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	waiting = slices.Clone(w.batch)
	for _, e := range w.queue {
		waiting = append(waiting, e.record.ID)
	}
	return waiting, w.gone
}

func (w *Writer) poke() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Close writes what waits. A disk that hangs is waited for so long at most; then the goroutine that
// hangs on it is left behind. An error says what was not written.
func (w *Writer) Close(atMost time.Duration) error {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.poke()
	if !retry.Await(w.done, atMost) {
		return fmt.Errorf("records: %s did not take the last records and the state within %v", w.o.Dir,
			atMost)
	}
	return w.unwritten
}

func (w *Writer) run() {
	defer close(w.done)
	defer w.unlock()
	defer w.journal.close()
	if w.kmsg != nil {
		defer w.kmsg.Close()
	}
	retry := time.NewTimer(w.o.Retry)
	retry.Stop()
	for {
		select {
		case <-w.wake:
		case <-retry.C:
		}
		w.mu.Lock()
		last := w.closed // nothing is handed over after this
		w.mu.Unlock()
		w.unwritten = w.round()
		if last {
			return
		}
		if w.unwritten != nil {
			retry.Reset(w.o.Retry)
		}
	}
}

func (w *Writer) unlock() {
	if w.lock != nil {
		_ = w.lock.Close()
	}
}

// round writes what waits: what is quick and survives the node first. An error: some of it still
// waits.
func (w *Writer) round() error {
	w.mu.Lock()
	batch, state, lost, gone := w.queue, w.state, w.lost, w.gone
	w.queue, w.state, w.lost = nil, nil, 0
	for _, e := range batch {
		w.batch = append(w.batch, e.record.ID)
	}
	w.mu.Unlock()
	defer w.wrote()
	for _, e := range batch {
		e.record.Version, e.record.BootID, e.record.Agent = Version, w.o.BootID, w.o.Agent
		bound(&e.record)
		if e.kmsg && w.kmsg != nil {
			_, err := w.kmsg.Write(kmsgLine(&e.record))
			w.said(toKmsg, err)
		}
		e.kmsg = false
	}
	if w.o.Dir == "" {
		return nil
	}
	if err := w.acquire(); err != nil {
		w.said(toState, err)
		w.putBack(batch, lost)
		w.keep(state)
		return err
	}
	err := w.writeState(state)
	for i, e := range batch {
		line, err2 := encode(&e.record)
		if err2 != nil { // it never will be
			w.said(toRecords, err2)
			lost++
			w.dropped.Add(1)
			gone = max(gone, e.record.ID)
			continue
		}
		if err2 := w.journal.append(e.record.ID, line); err2 != nil {
			w.said(toRecords, err2)
			w.putBack(batch[i:], lost)
			return errors.Join(err, err2)
		}
	}
	if err2 := w.mark(gone); err2 != nil {
		w.said(toRecords, err2)
		w.putBack(nil, lost)
		return errors.Join(err, err2)
	}
	if len(batch) > 0 && (lost > 0 || w.troubles[toRecords] != "") {
		w.troubles[toRecords] = ""
		w.o.Report(Notice{What: troubleNames[toRecords], Lost: lost})
	}
	return err
}

// mark has the file say that records up to an ID were given up; empty: none were.
func (w *Writer) mark(gone string) error {
	if gone == "" {
		return nil
	}
	err := w.journal.append("", markOf(lost{gone, lostReason}))
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case err != nil:
		w.gone = max(w.gone, gone)
	case w.gone <= gone:
		w.gone = ""
	}
	return err
}

// wrote ends a round.
func (w *Writer) wrote() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.batch = nil
}

// writeState writes the state, or keeps it for the next round.
func (w *Writer) writeState(s *State) error {
	if s == nil {
		return nil
	}
	s.Version, s.BootID, s.Time = StateVersion, w.o.BootID, time.Time{}
	slices.SortFunc(s.HoldOffs, func(x, y HoldOff) int { // they come out of maps
		return cmp.Or(strings.Compare(x.UID, y.UID), strings.Compare(fmt.Sprint(x.Owner),
			fmt.Sprint(y.Owner)))
	})
	text, err := s.encode()
	if err != nil { // it never will be
		w.said(toState, err)
		return err
	}
	if bytes.Equal(text, w.saved) {
		return nil
	}
	w.saved = nil
	s.Time = time.Now()
	if text2, err2 := s.encode(); err2 != nil {
		err = err2
	} else if err = w.replaceState(text2); err == nil {
		w.saved = text
	}
	if w.said(toState, err); err != nil {
		w.keep(s)
	}
	return err
}

// keep has a state wait that was not written, unless there is a newer one.
func (w *Writer) keep(s *State) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.state == nil {
		w.state = s
	}
}

func (w *Writer) replaceState(text []byte) error {
	if err := os.MkdirAll(w.o.Dir, 0o700); err != nil {
		return fmt.Errorf("state: %w", err)
	}
	err := atomicfile.Replace(filepath.Join(w.o.Dir, StateFile), func(f *os.File) error {
		_, err := w.journal.write(f, text)
		return err
	})
	if err != nil {
		return fmt.Errorf("state: %w", err)
	}
	return nil
}

// putBack has records wait that could not be written, before those that came meanwhile, and not
// those that are out of date by now.
func (w *Writer) putBack(batch []*entry, lost int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	since := w.queue
	w.queue = append([]*entry(nil), batch...)
	for _, e := range since {
		w.enqueue(e)
	}
	w.trim()
	w.lost += lost
}

// said reports the first of a row of errors that say the same, and the end of them.
func (w *Writer) said(what int, err error) {
	switch {
	case err == nil && w.troubles[what] != "":
		w.troubles[what] = ""
		w.o.Report(Notice{What: troubleNames[what]})
	case err != nil && w.troubles[what] != err.Error():
		w.troubles[what] = err.Error()
		w.o.Report(Notice{What: troubleNames[what], Err: err})
	}
}
