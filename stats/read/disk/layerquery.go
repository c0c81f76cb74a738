package disk

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"time"

	"jettison/cri"
	"jettison/stats"
)

// layerValue is the runtime's value of a writable layer.
type layerValue struct {
	usage   stats.FsUsage
	queried time.Time
}

// runtimeLayer returns the runtime's value for a writable layer. One query covers all containers. If
// the runtime reports roots (CRI-O), the value of a container without one is that of queryRoot: CRI-O
// walks the files of every container for the answer to the common query.
func (s *storageWalker) runtimeLayer(ctx context.Context, c *cri.Container) (stats.FsUsage, error) {
	why := errors.New("the runtime has not reported the container's root yet")
	if !s.rooted || c.Root != "" {
		s.queryLayers(ctx)
		why = errors.New("the host has no overlay mounted as its root, and " +
			"the runtime reports no writable layer usage")
	}
	if v, ok := s.layerValues[c.ID]; ok && time.Since(v.queried) <= storageLimit {
		v.usage.Partial = v.queried.Before(s.fresh)
		return v.usage, nil
	}
	if c.PID == 0 {
		why = errors.New("neither its process nor its root is known yet")
	}
	return stats.FsUsage{}, fmt.Errorf("container %s: %w", c.ID,
		errors.Join(why, s.mountErr, s.layerErr))
}

// queryLayers queries the runtime for all layers if the last query began before s.fresh.
func (s *storageWalker) queryLayers(ctx context.Context) {
	if !s.layersQueried.Before(s.fresh) && !s.layersQueried.IsZero() {
		return
	}
	var all []cri.ContainerStats
	began, ok := s.query(ctx, func(ctx context.Context) (err error) {
		all, err = s.runtime.ListContainerStats(ctx)
		return err
	})
	if !began.IsZero() {
		s.layersQueried = began
	}
	if !ok {
		return
	}
	s.layerValues = map[string]layerValue{}
	for i := range all {
		s.keepValue(&all[i], began)
	}
}

// queryRoot returns the upper directory of a container whose statuses lack its root, because the
// verbose one is too large or timed out. CRI-O's statistics contain the root. One answer suffices:
// storage.dirs keeps the directory. If the host has no overlay there, the value in the answer counts.
func (s *storageWalker) queryRoot(ctx context.Context, c *cri.Container, since time.Time) (string,
	bool) {
	v, known := s.layerValues[c.ID]
	if !s.rooted || c.Root != "" || !c.Detailed || c.State == cri.Created ||
		known && !v.queried.Before(s.fresh) {
		return "", false
	}
	var one cri.ContainerStats
	began, ok := s.query(ctx, func(ctx context.Context) (err error) {
		one, err = s.runtime.ContainerStats(ctx, c.ID)
		return err
	})
	if !ok || one.WritableLayer == nil || !path.IsAbs(one.WritableLayer.Mountpoint) {
		return "", false
	}
	maps.DeleteFunc(s.layerValues, func(_ string, v layerValue) bool {
		return time.Since(v.queried) > storageLimit
	})
	one.ID = c.ID
	s.keepValue(&one, began)
	named := *c
	named.Root = path.Clean(one.WritableLayer.Mountpoint)
	return s.upper(&named, since)
}

func (s *storageWalker) keepValue(c *cri.ContainerStats, queried time.Time) {
	l := c.WritableLayer
	if l == nil || l.UsedBytes == nil || l.InodesUsed == nil {
		return
	}
	u := stats.FsUsage{Time: l.Time, UsedBytes: *l.UsedBytes, InodesUsed: *l.InodesUsed}
	if u.Time.Unix() <= 0 { // the runtime sent no time
		u.Time = queried
	}
	if s.layerValues == nil {
		s.layerValues = map[string]layerValue{}
	}
	s.layerValues[c.ID] = layerValue{u, queried}
}

// query calls the runtime, unless it rests. A call may be expensive: after it the runtime gets four
// times as long to rest, after one without an answer 15 s, then twice as long each time, up to a limit.
// Without an answer the earlier values stay. began is zero if the runtime was not called.
func (s *storageWalker) query(ctx context.Context, call func(context.Context) error) (began time.Time,
	ok bool) {
	now := time.Now()
	if now.Before(s.queryNotBefore) || ctx.Err() != nil {
		return time.Time{}, false
	}
	short, cancel := context.WithTimeout(ctx, runtimeTimeout)
	s.layerErr = call(short)
	cancel()
	if s.layerErr == nil {
		s.queryPause = 0
		s.queryNotBefore = time.Now().Add(max(4*time.Since(now), time.Second))
		return now, true
	}
	longest := storageEvery
	if s.rooted {
		longest = longestPause
	}
	s.queryPause = min(max(2*s.queryPause, failedPause), longest)
	s.queryNotBefore = time.Now().Add(s.queryPause)
	return now, false
}

const (
	// runtimeTimeout bounds the wait for the runtime, because the measurement of all pods waits.
	runtimeTimeout = 3 * time.Second
	// failedPause is the first pause after a query without an answer.
	failedPause = 15 * time.Second
	// longestPause bounds the pause for CRI-O. It finishes the walk of an abandoned query, and later
	// queries of any client wait for it, so the pause must grow beyond the length of the walk.
	longestPause = time.Hour
)
