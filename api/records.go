package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
)

// RecordsAnswer is the answer to GET /v1/records.
type RecordsAnswer struct {
	// Records are the last evictions, at most 32, oldest first: those that are not over, too, and those of the process before this one.
	Records []*Record `json:"records"`
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
