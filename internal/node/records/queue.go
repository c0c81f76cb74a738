package records

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"jettison/api"
	"jettison/internal/base/atomicfile"

	"golang.org/x/sys/unix"
)

// recentSize bounds the records in memory.
const recentSize = 32

// Queue keeps the last records in memory for readers, finds older ones in the file, and notifies
// waiting readers of each new or changed record. It is safe for concurrent use, and readers never
// block the Keeper.
type Queue struct {
	reading sync.Mutex // one reader at a time searches the file

	mu   sync.Mutex
	open bool
	// in the order of their first put; the records are never modified
	recent     []change
	seq        uint64  // number of the last change
	droppedSeq uint64  // last change of a record that is no longer in memory
	path       string  // of the file; empty: no file
	writer     *Writer // nil: nothing is written
	droppedID  string  // without a file: the newest ID that is no longer in memory
	// without a file: sorts before each ID of this process; empty: a file exists
	began string
	more  chan struct{}
}

// change is a version of a record, with the number of the change.
type change struct {
	record *api.Record
	seq    uint64
}

// NewQueue returns an empty Queue, which a Keeper fills.
func NewQueue() *Queue { return &Queue{} }

// start fills the Queue with earlier records, oldest first, and sets the file and its Writer. path
// may be empty and writer nil.
func (q *Queue) start(now time.Time, kept []api.Record, path string, writer *Writer) {
	for _, r := range kept[max(0, len(kept)-recentSize):] {
		q.put(r)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.open, q.path, q.writer = true, path, writer
	if path == "" {
		q.began = now.UTC().Format(idTime)
	}
}

// put adds a record or replaces its earlier version.
func (q *Queue) put(now api.Record) {
	bound(&now) // copies the lists
	q.mu.Lock()
	defer q.mu.Unlock()
	q.seq++
	c := change{&now, q.seq}
	if at := slices.IndexFunc(q.recent,
		func(x change) bool { return x.record.ID == now.ID }); at >= 0 {
		q.recent[at] = c
	} else {
		q.recent = append(q.recent, c)
	}
	for len(q.recent) > recentSize {
		q.droppedSeq = max(q.droppedSeq, q.recent[0].seq)
		q.droppedID = max(q.droppedID, q.recent[0].record.ID)
		q.recent = slices.Delete(q.recent, 0, 1)
	}
	if q.more != nil {
		close(q.more)
		q.more = nil
	}
}

// Recent returns the records in memory, oldest first, never nil. ok is false while the agent
// starts.
func (q *Queue) Recent() (records []*api.Record, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	records = []*api.Record{}
	for _, c := range q.recent {
		records = append(records, c.record)
	}
	return records, q.open
}

// Position is the position of a reader in the changes.
type Position struct {
	seq  uint64
	More <-chan struct{} // closed at the next change; never nil
}

func (q *Queue) position() Position {
	if q.more == nil {
		q.more = make(chan struct{})
	}
	return Position{q.seq, q.more}
}

// Next returns the current versions of the records changed since a position, in the order of the
// changes. ok is false if the changed records are no longer all in memory, so that the reader must
// start over.
func (q *Queue) Next(from Position) (records []*api.Record, to Position, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	changed := slices.DeleteFunc(slices.Clone(q.recent),
		func(c change) bool { return c.seq <= from.seq })
	slices.SortFunc(changed, func(x, y change) int { return int(x.seq) - int(y.seq) })
	for _, c := range changed {
		records = append(records, c.record)
	}
	return records, q.position(), q.droppedSeq <= from.seq
}

// Read calls each for the records after an ID or a prefix of one; empty: all. It passes the record
// gap first, if there is one, and then the current versions of the records, sorted by ID. It
// returns the error of each.
func (q *Queue) Read(after string, each func(*api.RecordsLine) error) (Position, error) {
	q.mu.Lock()
	at, path, dropped := q.position(), q.path, q.droppedID
	// a reader with a position may have missed records of the previous process
	if after != "" {
		dropped = max(dropped, q.began)
	}
	recent := map[string]*api.Record{}
	for _, c := range q.recent {
		recent[c.record.ID] = c.record
	}
	writer := q.writer
	q.mu.Unlock()

	var older fileRecords
	defer older.close()
	if path != "" {
		older = q.readFile(path, writer, after, recent)
	} else if dropped > after {
		older.gap = &api.RecordsGap{Until: dropped, Reason: unkeptReason}
	}
	if older.gap != nil {
		older.gap.After = after
		if err := each(&api.RecordsLine{Gap: older.gap}); err != nil {
			return at, err
		}
	}
	ids := slices.AppendSeq(slices.Collect(maps.Keys(older.at)), maps.Keys(recent))
	slices.Sort(ids)
	for _, id := range ids {
		r := recent[id]
		if r == nil {
			r = older.record(id)
		}
		if r == nil || id <= after {
			continue
		}
		if err := each(&api.RecordsLine{Record: r}); err != nil {
			return at, err
		}
	}
	return at, nil
}

// fileRecords are the records in the file that are not in memory.
type fileRecords struct {
	file *os.File // nil: no records
	at   map[string]place
	gap  *api.RecordsGap // nil: no gap
}

func (k *fileRecords) close() {
	if k.file != nil {
		_ = k.file.Close()
	}
}

// record reads one record; nil: the line is no such record.
func (k *fileRecords) record(id string) *api.Record {
	p := k.at[id]
	text := make([]byte, p.size)
	if _, err := k.file.ReadAt(text, p.at); err != nil {
		return nil
	}
	r, ok := decode(line{text: text})
	if !ok || r.ID != id {
		return nil
	}
	return &r
}

// readFile finds the records in the file after an ID, without those in memory. It derives the
// record gap from the gap marks in the file and from the records pending in the Writer.
func (q *Queue) readFile(path string, writer *Writer, after string,
	recent map[string]*api.Record) (k fileRecords) {
	q.reading.Lock()
	defer q.reading.Unlock()
	pending, lost := writer.missing() // before the file is read, so that no record is missed
	until, reason := lost, lostReason
	found, file, err := searchFile(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
	case err != nil:
		k.gap = &api.RecordsGap{Until: until, Reason: oneLine(err.Error(), maxError)}
		return k
	default:
		k.file, k.at = file, found.last
		if found.lost.id > until {
			until, reason = found.lost.id, found.lost.reason
		}
	}
	for _, id := range pending {
		if _, written := k.at[id]; !written && recent[id] == nil && id > until {
			until, reason = id, "not written yet, the disk is full, slow or fails"
		}
	}
	maps.DeleteFunc(k.at, func(id string, _ place) bool { return id <= after || recent[id] != nil })
	if until > after {
		k.gap = &api.RecordsGap{Until: until, Reason: reason}
	}
	return k
}

// searchFile finds the places of the records in a file. The caller must close the file.
func searchFile(path string) (searchResult, *os.File, error) {
	f, err := atomicfile.Open(path, os.O_RDONLY|unix.O_NOFOLLOW)
	if err != nil {
		return searchResult{}, nil, err
	}
	info, err := f.Stat()
	var in searchResult
	if err == nil {
		in, err = search(f, info.Size(), readBytes, maxRecords)
	}
	if err != nil {
		_ = f.Close()
		return searchResult{}, nil, fmt.Errorf("read %s: %w", path, err)
	}
	return in, f, nil
}

// searchResult is the content of a file of records.
type searchResult struct {
	order []string         // IDs in the order of their first lines
	last  map[string]place // place of the last line of each
	lost  lostRange        // newest range of lost records
}

// lostRange means that records up to an ID may be missing.
type lostRange struct{ id, reason string }

func (l *lostRange) add(id, reason string) {
	if id > l.id {
		*l = lostRange{id, reason}
	}
}

// Why records are missing.
const (
	rotatedReason = "the file reached its size limit and the oldest records were removed"
	lostReason    = "the records could not be written in time"
	brokenReason  = "the file contains corrupt lines"
	unkeptReason  = "no stateDir is configured: only the last records since the start are in memory"
)

// search finds the records in the last bytes of a file.
func search(r io.ReaderAt, size, most int64, records int) (searchResult, error) {
	from := max(0, size-most)
	out := searchResult{last: map[string]place{}}
	before, broken, cut := "0", false, from > 0
	err := lines(io.NewSectionReader(r, from, size-from), func(l line) {
		id, mark := idOf(l.text)
		switch {
		case l.torn: // it is being written, or the next write will terminate it
			return
		case cut: // the end of a line
			cut = false
			return
		case id == "" && (len(l.text) > 0 || l.long):
			out.lost.add(before, brokenReason)
			broken = true
			return
		case id == "":
			return
		case mark != "":
			out.lost.add(id, mark)
			return
		}
		if broken && id > before { // the corrupt record is between the previous ID and this one
			out.lost.add(id, brokenReason)
			broken = false
		}
		before = max(before, id)
		if _, again := out.last[id]; !again {
			out.order = append(out.order, id)
		}
		out.last[id] = place{from + l.at, len(l.text)}
		if len(out.order) > 2*records { // not written by an agent
			out.lost.add(out.order[0], rotatedReason)
			delete(out.last, out.order[0])
			out.order = out.order[1:]
		}
	})
	if from > 0 && len(out.order) > 0 {
		out.lost.add(out.order[0], rotatedReason) // the records before the first one
	}
	return out, err
}
