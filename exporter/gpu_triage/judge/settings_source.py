"""The judge's settings in a running exporter: loaded from the configuration file, and reloaded on request."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from gpu_triage.errors import ConfigError
from gpu_triage.judge.findings.settings import JudgeSettings, judge_settings
from gpu_triage.log import fields
from gpu_triage.options.config import Config
from gpu_triage.options.option import Option
from gpu_triage.options.option_sources import judge_options_now
from gpu_triage.read.exporter.exporter_health import JudgeSettingsHealth

log = logging.getLogger(__name__)


class SettingsSource:
    """Reloads the judge's settings from the configuration file; all other options need a restart.

    `use` applies new settings. `report` receives the result of each load of the file, including the one at startup.
    `options` are those allowed in the file.
    """

    def __init__(
        self,
        config: Config,
        options: Sequence[Option],
        use: Callable[[JudgeSettings], None],
        report: Callable[[JudgeSettingsHealth], None],
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._config = config
        self._options = options
        self._use = use
        self._report = report
        self._wall = wall
        self._loaded_at = wall()
        if config.config_file is not None:
            report(JudgeSettingsHealth(success=True, loaded_at=self._loaded_at))

    def reload(self) -> None:
        """Reload the file now. If it is invalid, the settings stay, and the error is logged and reported."""
        try:
            options = judge_options_now(self._config, self._options)
            settings = judge_settings(options)
        except ConfigError as error:
            self._fail(str(error))
            return
        self._config = replace(self._config, judge=options)
        self._loaded_at = self._wall()
        self._use(settings)
        changed = "; ".join(each.text for each in settings.changed) or "all are the defaults"
        log.info("the judge's settings were read", extra=fields(file=self._config.config_file, settings=changed))
        self._report(JudgeSettingsHealth(success=True, loaded_at=self._loaded_at))

    def _fail(self, cause: str) -> None:
        log.error("the configuration file cannot be used, the judge's settings stay", extra=fields(cause=cause))
        self._report(JudgeSettingsHealth(success=False, loaded_at=self._loaded_at))
