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

// recentSize bounds the records that are at hand for readers.
const recentSize = 32

// Queue has the last records at hand for readers, finds older ones in the file, and tells who waits
// of each that is new or another by now. It is safe for concurrent use, and no reader holds up
// whoever keeps records.
type Queue struct {
	reading sync.Mutex // the file is searched by one reader at a time

	mu   sync.Mutex
	open bool
	// in the order in which they came first. What one points to is never written again
	recent  []change
	seq     uint64  // of the last change
	past    uint64  // the last change of a record that is not at hand any more
	path    string  // of the file; empty: there is none
	writer  *Writer // nil: nothing is written
	dropped string  // without a file: the newest ID that is not at hand any more
	// without a file: what sorts before each ID of this process; empty: there is a file
	began string
	more  chan struct{}
}

// change is a record as it is since then.
type change struct {
	record *api.Record
	seq    uint64
}

// NewQueue makes a Queue that does not know of any record yet: a Keeper fills it.
func NewQueue() *Queue { return &Queue{} }

// start begins with those that were kept before, oldest first, and where all lie; writer and path
// may be missing.
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

// put has a record at hand as it is now, in the place of what there was of its eviction.
func (q *Queue) put(now api.Record) {
	bound(&now) // which makes lists of its own
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
		q.past, q.dropped = max(q.past, q.recent[0].seq), max(q.dropped, q.recent[0].record.ID)
		q.recent = slices.Delete(q.recent, 0, 1)
	}
	if q.more != nil {
		close(q.more)
		q.more = nil
	}
}

// Recent are the records at hand, oldest first, never nil; ok false: there are none yet, for the
// agent starts.
func (q *Queue) Recent() (records []*api.Record, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	records = []*api.Record{}
	for _, c := range q.recent {
		records = append(records, c.record)
	}
	return records, q.open
}

// Position is how far a reader is.
type Position struct {
	seq  uint64
	More <-chan struct{} // closed when there is something new; never nil
}

func (q *Queue) position() Position {
	if q.more == nil {
		q.more = make(chan struct{})
	}
	return Position{q.seq, q.more}
}

// Next are the records that have changed since, in the order in which they did, each as it is now.
// ok false: others have, too, that are not at hand any more, so that the reader has to begin again.
func (q *Queue) Next(from Position) (records []*api.Record, to Position, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	changed := slices.DeleteFunc(slices.Clone(q.recent),
		func(c change) bool { return c.seq <= from.seq })
	slices.SortFunc(changed, func(x, y change) int { return int(x.seq) - int(y.seq) })
	for _, c := range changed {
		records = append(records, c.record)
	}
	return records, q.position(), q.past <= from.seq
}

// Read hands over what is kept after an ID, or what looks like the beginning of one; empty: all.
// First what is missing, if something is, then the records by their IDs, each as it is now. An
// error is each's.
func (q *Queue) Read(after string, each func(*api.RecordsLine) error) (Position, error) {
	q.mu.Lock()
	at, path, dropped := q.position(), q.path, q.dropped
	// who asks after one may have missed what the process before this one has begun since
	if after != "" {
		dropped = max(dropped, q.began)
	}
	recent := map[string]*api.Record{}
	for _, c := range q.recent {
		recent[c.record.ID] = c.record
	}
	writer := q.writer
	q.mu.Unlock()

	var older kept
	defer older.close()
	if path != "" {
		older = q.older(path, writer, after, recent)
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

// kept are the records that lie in the file and are not at hand.
type kept struct {
	file *os.File // nil: none do
	at   map[string]place
	gap  *api.RecordsGap // nil: nothing is missing
}

func (k *kept) close() {
	if k.file != nil {
		_ = k.file.Close()
	}
}

// record reads one; nil: it is none.
func (k *kept) record(id string) *api.Record {
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

// older finds the records of the file after an ID, without those at hand. What is missing is found
// by what was left in their place, and by what waits to be written.
func (q *Queue) older(path string, writer *Writer, after string,
	recent map[string]*api.Record) (k kept) {
	q.reading.Lock()
	defer q.reading.Unlock()
	waiting, lost := writer.missing() // before the file is read: what is written meanwhile is in it
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
	for _, id := range waiting {
		if _, written := k.at[id]; !written && recent[id] == nil && id > until {
			until, reason = id, "they are not written yet: the disk does not take them"
		}
	}
	maps.DeleteFunc(k.at, func(id string, _ place) bool { return id <= after || recent[id] != nil })
	if until > after {
		k.gap = &api.RecordsGap{Until: until, Reason: reason}
	}
	return k
}

// searchFile finds where the records of a file lie. The file is the caller's to close.
func searchFile(path string) (found, *os.File, error) {
	f, err := atomicfile.Open(path, os.O_RDONLY|unix.O_NOFOLLOW)
	if err != nil {
		return found{}, nil, err
	}
	info, err := f.Stat()
	var in found
	if err == nil {
		in, err = search(f, info.Size(), readBytes, maxRecords)
	}
	if err != nil {
		_ = f.Close()
		return found{}, nil, fmt.Errorf("read %s: %w", path, err)
	}
	return in, f, nil
}

// found is what lies in a file of records.
type found struct {
	order []string         // IDs in the order in which they came first
	last  map[string]place // of the last line of each
	lost  lost             // the newest mark of what was there once
}

// lost says that records up to an ID may be missing.
type lost struct{ id, reason string }

func (l *lost) add(id, reason string) {
	if id > l.id {
		*l = lost{id, reason}
	}
}

// Why records are missing.
const (
	rotatedReason = "the file is bounded, and the oldest records went"
	lostReason    = "they could not be written in time"
	brokenReason  = "lines of the file are no records"
	unkeptReason  = "no stateDir is configured: only the last are in memory, and none from before the agent started"
)

// search finds the records in the last bytes of a file.
func search(r io.ReaderAt, size, most int64, records int) (found, error) {
	from := max(0, size-most)
	out := found{last: map[string]place{}}
	before, broken, cut := "0", false, from > 0
	err := lines(io.NewSectionReader(r, from, size-from), func(l line) {
		id, mark := idOf(l.text)
		switch {
		case l.torn: // it is being written, or will be ended by who writes next
			return
		case cut: // the end of one
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
		if broken && id > before { // what there was came after what is before it, and before this
			out.lost.add(id, brokenReason)
			broken = false
		}
		before = max(before, id)
		if _, again := out.last[id]; !again {
			out.order = append(out.order, id)
		}
		out.last[id] = place{from + l.at, len(l.text)}
		if len(out.order) > 2*records { // lines that no agent wrote
			out.lost.add(out.order[0], rotatedReason)
			delete(out.last, out.order[0])
			out.order = out.order[1:]
		}
	})
	if from > 0 && len(out.order) > 0 {
		out.lost.add(out.order[0], rotatedReason) // what is before the first
	}
	return out, err
}
