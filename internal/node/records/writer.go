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

// Options of a Writer. The zero value of a limit selects its default.
type Options struct {
	Dir    string // the state directory; empty: write to the kernel log only
	Kmsg   string // the kernel log; empty: Kmsg
	BootID string // from bootid.Read, for records and state
	Agent  string // version of the agent
	// Bytes and Records limit the file of records. Default 4 MiB, 1000.
	Bytes   int64
	Records int
	Queue   int           // limit of pending records; default 64
	Retry   time.Duration // delay before a retry; default 5 s
	// Report is called when a write fails, and when writes work again, from Start and from the
	// Writer's goroutine. It must not block. May be nil.
	Report func(Notice)
}

// Notice reports a failure or the end of one. Each failure is reported once.
type Notice struct {
	What string // records, state, kernel log
	Err  error  // nil: writes work again
	Lost int    // records lost in the meantime, the oldest ones
}

// Writer writes records, the state and lines of the kernel log in its own goroutine. It never
// blocks its callers: with a hanging or full disk it drops the oldest records beyond the limit of
// pending ones. Call Close at the end.
type Writer struct {
	o       Options
	wake    chan struct{} // one slot
	done    chan struct{}
	foreign error
	dropped atomic.Uint64 // records lost since the start

	mu     sync.Mutex
	queue  []*entry // oldest first
	state  *State   // newest unwritten state; nil: none
	lost   int      // records lost since the last report
	lostID string   // newest lost ID that the file does not mark yet; empty: none
	batch  []string // IDs of the records being written
	closed bool

	// Fields of the goroutine.
	lock      *os.File // of the directory; nil: not locked
	kmsg      *os.File // nil: cannot be opened
	journal   journal
	saved     []byte // the state on disk, without its time; nil: unknown
	failures  [3]string
	unwritten error // error of the last round
}

// entry is a pending record.
type entry struct {
	record api.Record
	kmsg   bool // also write a line to the kernel log
}

// Targets of writes, as indices of failures.
const (
	toRecords = iota
	toState
	toKmsg
)

var targetNames = [...]string{"records", "state", "kernel log"}

// lockFile is the lock file in the state directory of the one process that writes there.
const lockFile = "agent.lock"

// lockedError returns the error for a directory that another agent has locked.
func lockedError(dir string, err error) error {
	who := "another agent"
	if locked := (*atomicfile.LockedError)(nil); errors.As(err, &locked) && locked.PID != 0 {
		who = fmt.Sprintf("another agent (pid %d)", locked.PID)
	}
	return fmt.Errorf("stateDir %s is locked by %s: stop that agent, or configure another stateDir",
		dir, who)
}

// acquire locks the directory, because two agents would treat each other's evictions as their own.
// It fails if another process has the lock. If the directory cannot be locked at all, it returns
// nil and the first write reports the error.
func (w *Writer) acquire() error {
	if w.o.Dir == "" || w.lock != nil || os.MkdirAll(w.o.Dir, 0o700) != nil {
		return nil
	}
	var err error
	if w.lock, err = atomicfile.Lock(filepath.Join(w.o.Dir, lockFile)); errors.Is(err,
		atomicfile.ErrLocked) {
		return lockedError(w.o.Dir, err)
	}
	if err == nil {
		for _, name := range []string{StateFile, File} {
			atomicfile.Clean(filepath.Join(w.o.Dir, name))
		}
	}
	return nil
}

// Start starts a Writer. It opens the kernel log and locks the directory; the first write reports
// other problems of the directory. While another process has the lock, nothing is written there.
func Start(o Options) (*Writer, error) {
	if o.Bytes < 0 || o.Records < 0 || o.Queue < 0 || o.Retry < 0 {
		return nil, errors.New("records: limits must not be negative")
	}
	if o.Dir != "" && !filepath.IsAbs(o.Dir) {
		return nil, fmt.Errorf("records: stateDir %q must be an absolute path", o.Dir)
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
		w.report(toKmsg, err)
	}
	err = w.acquire()
	w.report(toState, err)
	w.foreign = err
	go w.run()
	return w, nil
}

// LockedByOther returns an error that names the process that had locked the directory at the start; nil:
// none.
func (w *Writer) LockedByOther() error { return w.foreign }

// Begin queues the record of an eviction that has begun, and a line for the kernel log. The Writer
// owns all memory that the record points to.
func (w *Writer) Begin(r api.Record) { w.put(&entry{r, true}) }

// Update queues a complete new version of a record. The Writer owns all memory that the record
// points to.
func (w *Writer) Update(r api.Record) { w.put(&entry{r, false}) }

// Save queues the state for the next process, in place of an earlier one. The Writer owns all
// memory that it points to. An unchanged state is not written again.
func (w *Writer) Save(s State) {
	w.mu.Lock()
	if !w.closed {
		w.state = &s
	}
	w.mu.Unlock()
	w.wakeUp()
}

func (w *Writer) put(e *entry) {
	w.mu.Lock()
	if !w.closed {
		w.enqueue(e)
	}
	w.mu.Unlock()
	w.wakeUp()
}

// enqueue adds a record or replaces the pending version of it. If there are too many it drops the
// oldest. mu is held.
func (w *Writer) enqueue(e *entry) {
	for i, old := range w.queue {
		if old.record.ID == e.record.ID {
			e.kmsg = e.kmsg || old.kmsg
			w.queue[i] = e
			return
		}
	}
	w.queue = append(w.queue, e)
	w.dropOldest()
}

func (w *Writer) dropOldest() {
	if over := len(w.queue) - w.o.Queue; over > 0 {
		w.lost += over
		w.dropped.Add(uint64(over))
		for _, e := range w.queue[:over] {
			w.lostID = max(w.lostID, e.record.ID)
		}
		w.queue = append(w.queue[:0], w.queue[over:]...)
	}
}

// missing returns the IDs of pending records, and the newest lost ID that the file does not mark
// yet.
func (w *Writer) missing() (pending []string, lostID string) {
	if w == nil {
		return nil, ""
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	pending = slices.Clone(w.batch)
	for _, e := range w.queue {
		pending = append(pending, e.record.ID)
	}
	return pending, w.lostID
}

func (w *Writer) wakeUp() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Close writes the pending records and state. It waits for atMost; with a hanging disk it leaves
// the goroutine behind. It returns an error if data was not written.
func (w *Writer) Close(atMost time.Duration) error {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.wakeUp()
	if !retry.Await(w.done, atMost) {
		return fmt.Errorf("write the last records and the state to %s: not finished within %v", w.o.Dir,
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
		last := w.closed // nothing is queued after this
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

// round writes everything pending, the kernel log first, because it is quick and may survive the
// node. It returns an error if some data is still pending.
func (w *Writer) round() error {
	w.mu.Lock()
	batch, state, lost, gone := w.queue, w.state, w.lost, w.lostID
	w.queue, w.state, w.lost = nil, nil, 0
	for _, e := range batch {
		w.batch = append(w.batch, e.record.ID)
	}
	w.mu.Unlock()
	defer w.endRound()
	for _, e := range batch {
		e.record.Version, e.record.BootID, e.record.Agent = Version, w.o.BootID, w.o.Agent
		bound(&e.record)
		if e.kmsg && w.kmsg != nil {
			_, err := w.kmsg.Write(kmsgLine(&e.record))
			w.report(toKmsg, err)
		}
		e.kmsg = false
	}
	if w.o.Dir == "" {
		return nil
	}
	if err := w.acquire(); err != nil {
		w.report(toState, err)
		w.requeue(batch, lost)
		w.keepState(state)
		return err
	}
	err := w.writeState(state)
	for i, e := range batch {
		line, err2 := encode(&e.record)
		if err2 != nil { // permanent
			w.report(toRecords, err2)
			lost++
			w.dropped.Add(1)
			gone = max(gone, e.record.ID)
			continue
		}
		if err2 := w.journal.append(e.record.ID, line); err2 != nil {
			w.report(toRecords, err2)
			w.requeue(batch[i:], lost)
			return errors.Join(err, err2)
		}
	}
	if err2 := w.mark(gone); err2 != nil {
		w.report(toRecords, err2)
		w.requeue(nil, lost)
		return errors.Join(err, err2)
	}
	if len(batch) > 0 && (lost > 0 || w.failures[toRecords] != "") {
		w.failures[toRecords] = ""
		w.o.Report(Notice{What: targetNames[toRecords], Lost: lost})
	}
	return err
}

// mark writes a gap mark for lost records up to an ID; empty: none are lost.
func (w *Writer) mark(gone string) error {
	if gone == "" {
		return nil
	}
	err := w.journal.append("", markOf(lostRange{gone, lostReason}))
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case err != nil:
		w.lostID = max(w.lostID, gone)
	case w.lostID <= gone:
		w.lostID = ""
	}
	return err
}

// endRound clears the batch.
func (w *Writer) endRound() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.batch = nil
}

// writeState writes the state. If that fails it keeps the state for the next round.
func (w *Writer) writeState(s *State) error {
	if s == nil {
		return nil
	}
	s.Version, s.BootID, s.Time = StateVersion, w.o.BootID, time.Time{}
	slices.SortFunc(s.HoldOffs, func(x, y HoldOff) int { // they come from maps, in random order
		return cmp.Or(strings.Compare(x.UID, y.UID), strings.Compare(fmt.Sprint(x.Owner),
			fmt.Sprint(y.Owner)))
	})
	text, err := s.encode()
	if err != nil { // permanent
		w.report(toState, err)
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
	if w.report(toState, err); err != nil {
		w.keepState(s)
	}
	return err
}

// keepState makes an unwritten state pending again, unless there is a newer one.
func (w *Writer) keepState(s *State) {
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

// requeue makes unwritten records pending again, before newer ones, except those that have been
// replaced since.
func (w *Writer) requeue(batch []*entry, lost int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	newer := w.queue
	w.queue = append([]*entry(nil), batch...)
	for _, e := range newer {
		w.enqueue(e)
	}
	w.dropOldest()
	w.lost += lost
}

// report reports the first of a series of equal errors, and the end of the series.
func (w *Writer) report(what int, err error) {
	switch {
	case err == nil && w.failures[what] != "":
		w.failures[what] = ""
		w.o.Report(Notice{What: targetNames[what]})
	case err != nil && w.failures[what] != err.Error():
		w.failures[what] = err.Error()
		w.o.Report(Notice{What: targetNames[what], Err: err})
	}
}
