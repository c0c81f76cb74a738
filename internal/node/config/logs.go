package config

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// maxSizeExponent bounds the exponent given to resource.ParseQuantity, which computes with as many
// digits as the exponent demands.
const maxSizeExponent = 18

// parseLogs checks the fields of log rotation, with the kubelet's texts
// (pkg/kubelet/logs/container_log_manager.go, pkg/kubelet/apis/config/validation/validation.go).
func (c *Config) parseLogs(kind string) (warnings []string, err error) {
	if c.LogMaxBytes, err = parseLogSize(c.ContainerLogMaxSize); err != nil {
		return nil, fieldError(fmt.Errorf("failed to parse container log max size %.40q: %w",
			c.ContainerLogMaxSize, err), "containerLogMaxSize")
	}
	if c.ContainerLogMaxFiles <= 1 {
		return nil, fieldError(errors.New(
			"invalid configuration: containerLogMaxFiles must be greater than 1"), "containerLogMaxFiles")
	}
	if c.LogMaxBytes == 0 {
		const odd = "0 rotates every log in each pass: use a negative size to disable rotation"
		if kind == KindAgent {
			return nil, fieldError(errors.New(odd), "containerLogMaxSize")
		}
		warnings = append(warnings, "containerLogMaxSize: "+odd)
	}
	return warnings, nil
}

func parseLogSize(text string) (bytes int64, err error) {
	q, err := boundedQuantity(text)
	if err != nil {
		return 0, err
	}
	bytes, ok := q.AsInt64()
	if !ok {
		return 0, errors.New("invalid max log size")
	}
	return bytes, nil
}

// boundedQuantity is resource.ParseQuantity with a limit on the number of digits.
func boundedQuantity(text string) (q resource.Quantity, err error) {
	if i := strings.LastIndexAny(text, "eE"); i >= 0 {
		n, err := strconv.Atoi(text[i+1:])
		if errors.Is(err, strconv.ErrRange) || err == nil &&
			(n > maxSizeExponent || n < -maxSizeExponent) {
			return q, fmt.Errorf("the exponent is not between -%d and %d", maxSizeExponent, maxSizeExponent)
		}
	}
	if len(text) > 100 {
		return q, errors.New("longer than 100 characters")
	}
	return resource.ParseQuantity(text)
}
