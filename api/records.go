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
	// Records are the latest evictions, at most 32, oldest first. They include evictions in progress
	// and those of the previous process.
	Records []*Record `json:"records"`
}

// RecordsLine is a line of the answer to GET /v1/records?after=ID. Exactly one field is set.
//
// The answer begins with a gap if records are missing. The stored records follow in the order of
// their IDs, each in its current state, and then Synced. With Follow, each later line is a whole
// record that is new or has changed, in the order of the changes.
type RecordsLine struct {
	Gap    *RecordsGap `json:"gap,omitempty"`
	Record *Record     `json:"record,omitempty"`
	Synced bool        `json:"synced,omitempty"` // all stored records precede this line
}

// RecordsGap reports missing records after After and up to Until: they were removed or cannot be
// read.
type RecordsGap struct {
	After string `json:"after"` // from the request
	// ID of the newest record that may be missing; empty: unknown
	Until  string `json:"until,omitempty"`
	Reason string `json:"reason"` // for people
}

// RecordsOptions selects the records of Client.FollowRecords.
type RecordsOptions struct {
	// After selects records with a greater ID. It is an ID or the beginning of one, such as
	// 20260720T0200; empty: all.
	After  string
	Follow bool // wait for more, until ctx ends
}

// maxRecord limits the size of one record in bytes.
const maxRecord = 1 << 20

// FollowRecords calls each with every line, except lines of unknown kinds. Without Follow it
// returns after the last line. With Follow it returns the error of ctx, of each, or of the
// connection: the agent disconnects a slow reader.
//
// To continue without loss, call it again with After set to the newest record older than all
// evictions in progress. A gap then reports every missing record.
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
		case l.Gap == nil && l.Record == nil && !l.Synced: // kind added by a newer agent
			return nil
		}
		return each(&l)
	})
}

// Records requests the records of the latest evictions.
func (c *Client) Records(ctx context.Context) ([]*Record, error) {
	text, err := c.ask(ctx, http.MethodGet, PathRecords, nil)
	if err != nil {
		return nil, err
	}
	var answer RecordsAnswer
	if err = json.Unmarshal(text, &answer); err == nil && answer.Records == nil {
		err = errors.New("field records is missing")
	}
	for _, r := range answer.Records {
		if err == nil && (r == nil || r.ID == "") {
			err = errors.New("record without an ID")
		}
	}
	if err != nil {
		return nil, c.failed(http.MethodGet, PathRecords, malformed(err))
	}
	return answer.Records, nil
}
