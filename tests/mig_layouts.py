"""Events that cut a simulated GPU into MIG instances."""


def cut(*instances: str, at: str = "0s", until: str | None = None, gpu: int = 0) -> str:
    """The body of an event that cuts a GPU into these instances, each ``profile gi ci slot activity``."""
    tables = []
    for instance in instances:
        profile, gi, ci, slot, activity = instance.split()
        tables.append(f'{{ profile = "{profile}", gi = {gi}, ci = {ci}, slot = {slot}, activity = {activity} }}')
    end = "" if until is None else f'until = "{until}"\n'
    return f'at = "{at}"\n{end}gpu = {gpu}\neffect = {{ kind = "mig", instances = [{", ".join(tables)}] }}'


def seven(at: str, first: int = 7, gpu: int = 0, until: str | None = None) -> str:
    """The body of an event that cuts a GPU into seven instances, whose GPU instances count from `first`."""
    return cut(*(f"1g.10gb {first + n} 0 {n} 0.5" for n in range(7)), at=at, gpu=gpu, until=until)
