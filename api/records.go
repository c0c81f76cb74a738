package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
)

// RecordsAnswer is the answer to GET /v1/records.
type RecordsAnswer struct {
	// Records are the last evictions, at most 32, oldest first: those that are not over, too, and
	// those of the process before this one.
	Records []*Record `json:"records"`
}

// RecordsLine is a line of the answer to GET /v1/records?after=ID: one of its fields is there.
// First comes a gap, if records are missing; then those that are kept, by their IDs, each as it is
// now; then that this was all. Whoever follows gets each record whole when it has begun or is
// another by now, in the order in which that happened.
type RecordsLine struct {
	Gap    *RecordsGap `json:"gap,omitempty"`
	Record *Record     `json:"record,omitempty"`
	Synced bool        `json:"synced,omitempty"` // all that was kept came before this
}

// RecordsGap is that records are not kept any more, or cannot be read: some of those after After,
// up to Until.
type RecordsGap struct {
	After string `json:"after"` // that was asked for
	// the ID of the newest one that may be missing; empty: not known
	Until  string `json:"until,omitempty"`
	Reason string `json:"reason"` // in words
}

// RecordsOptions of Client.FollowRecords.
type RecordsOptions struct {
	// only records with an ID that is greater: one's ID or the beginning of one, such as
	// 20260720T0200; empty: all
	After  string
	Follow bool // wait for more, until ctx ends
}

// maxRecord is the most that one record may have in bytes.
const maxRecord = 1 << 20

// FollowRecords hands over each line, but those of a kind that it does not know. It returns when
// there is none left, or, following, with the error by which ctx, the function or the agent ended
// it: the agent hangs up on a reader that is too slow for it. Then ask again after the ID of the
// newest record before all that are not over: nothing is missing that no gap names.
func (c *Client) FollowRecords(ctx context.Context, o RecordsOptions,
	each func(*RecordsLine) error) error {
	query := url.Values{"after": {o.After}}
	if o.Follow {
		query.Set("follow", "true")
	}
	return c.lines(ctx, PathRecords+"?"+query.Encode(), o.Follow, maxRecord, func(text []byte) error {
		var l RecordsLine
		err := json.Unmarshal(text, &l)
		switch {
		case err != nil, l.Record != nil && l.Record.ID == "":
			return malformed(errors.Join(err, fmt.Errorf("%.200q", text)))
		case l.Gap == nil && l.Record == nil && !l.Synced: // of a newer agent
			return nil
		}
		return each(&l)
	})
}

// Records asks for the last evictions, as records have them.
func (c *Client) Records(ctx context.Context) ([]*Record, error) {
	text, err := c.ask(ctx, http.MethodGet, PathRecords, nil)
	if err != nil {
		return nil, err
	}
	var answer RecordsAnswer
	if err = json.Unmarshal(text, &answer); err == nil && answer.Records == nil {
		err = errors.New("no records")
	}
	for _, r := range answer.Records {
		if err == nil && (r == nil || r.ID == "") {
			err = errors.New("a record without its ID")
		}
	}
	if err != nil {
		return nil, c.failed(http.MethodGet, PathRecords, malformed(err))
	}
	return answer.Records, nil
}
