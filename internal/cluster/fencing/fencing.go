// Package fencing checks whether a silent node is dead. It runs a program or queries an HTTP server
// that reads the node's state from outside the cluster, such as a machine's management controller
// or a cloud API. Only an answer that begins with the word "dead" confirms the death.
package fencing

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os/exec"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
)

// Check reports whether a node is dead. An error means that the check gave no valid answer.
type Check func(ctx context.Context, n *v1.Node) (dead bool, err error)

// The first words of valid answers.
const (
	answerDead  = "dead"
	answerAlive = "alive"
)

// maxAnswer limits the size of an answer, in bytes.
const maxAnswer = 4096

// New returns the configured check, or nil if neither a command nor a URL is set. timeout bounds
// each check.
func New(command []string, target string, timeout time.Duration) Check {
	var query func(ctx context.Context, n *v1.Node) ([]byte, error)
	switch {
	case len(command) > 0:
		query = func(ctx context.Context, n *v1.Node) ([]byte, error) { return run(ctx, command, n) }
	case target != "":
		client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		}}
		query = func(ctx context.Context, n *v1.Node) ([]byte, error) { return get(ctx, client, target, n) }
	default:
		return nil
	}
	return func(ctx context.Context, n *v1.Node) (bool, error) {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		text, err := query(ctx, n)
		if err != nil {
			return false, fmt.Errorf("check whether node %s is dead: %w", n.Name, err)
		}
		switch word := firstWord(text); word {
		case answerDead:
			return true, nil
		case answerAlive:
			return false, nil
		default:
			return false, fmt.Errorf(
				"check whether node %s is dead: answer begins with %.40q, want dead or alive", n.Name, word)
		}
	}
}

// firstWord returns the first word of a text.
func firstWord(text []byte) string {
	words := bufio.NewScanner(bytes.NewReader(text))
	words.Split(bufio.ScanWords)
	words.Scan()
	return words.Text()
}

// expand replaces the placeholders of a text with the values of a node.
func expand(text string, n *v1.Node, escape func(string) string) string {
	address := ""
	for _, a := range n.Status.Addresses {
		if a.Type == v1.NodeInternalIP {
			address = a.Address
			break
		}
	}
	return strings.NewReplacer("{node}", escape(n.Name), "{providerID}", escape(n.Spec.ProviderID),
		"{address}", escape(address)).Replace(text)
}

// run runs the check program without a shell. The program must exit with code 0. It rejects a value
// of the node that would turn an argument into an option.
func run(ctx context.Context, command []string, n *v1.Node) ([]byte, error) {
	args := make([]string, 0, len(command))
	for _, a := range command[1:] {
		expanded := expand(a, n, func(s string) string { return s })
		if strings.HasPrefix(expanded, "-") && !strings.HasPrefix(a, "-") {
			return nil, fmt.Errorf("%s: not run: argument %q becomes %.64q, "+
				"which the program may treat as an option", command[0], a, expanded)
		}
		args = append(args, expanded)
	}
	cmd := exec.CommandContext(ctx, command[0], args...)
	cmd.WaitDelay = time.Second // for children that hold its output open
	out, errs := &limitedBuffer{}, &limitedBuffer{}
	cmd.Stdout, cmd.Stderr = out, errs
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%s: %w: %.200q", command[0], err, errs.text)
	}
	return out.text, nil
}

// limitedBuffer keeps the first maxAnswer bytes written to it.
type limitedBuffer struct{ text []byte }

func (h *limitedBuffer) Write(b []byte) (int, error) {
	h.text = append(h.text, b[:min(len(b), maxAnswer-len(h.text))]...)
	return len(b), nil
}

// get sends the check request. The server must respond with status 200.
func get(ctx context.Context, client *http.Client, target string, n *v1.Node) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, expand(target, n, url.QueryEscape),
		nil)
	if err != nil {
		return nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	switch {
	case err != nil:
		return nil, err
	case response.StatusCode != http.StatusOK:
		return nil, errors.New("response status " + response.Status)
	}
	return text, nil
}
