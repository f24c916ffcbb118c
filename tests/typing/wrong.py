"""Wrong uses of the public surface, each marked with the rule that a type checker must refuse it by."""

from __future__ import annotations

from penstock import Encrypted, Entry, Event, Every, Limit, Penstock, Retry, Signed, Update, Worker, sync

app = Penstock("memory:")


@app.task
async def add(a: int, b: int = 2) -> int:
    return a + b


@app.task(timeout="1")  # pyright: ignore[reportArgumentType]
def mistimed() -> None: ...


@app.handler("q", retain="always")  # pyright: ignore[reportArgumentType]
def kept(payload: int) -> None: ...


def two(event: Event, more: int) -> None: ...


def nothing() -> None: ...


def with_keyword(payload: int, *, more: int) -> None: ...


app.handler("none")(nothing)  # pyright: ignore[reportArgumentType]
app.listen("none", nothing)  # pyright: ignore[reportArgumentType]
app.listen("none", with_keyword)  # pyright: ignore[reportArgumentType]
app.on("faild")  # pyright: ignore[reportArgumentType]
app.events(["completed", "faild"])  # pyright: ignore[reportArgumentType]
app.on("completed")(two)  # pyright: ignore[reportArgumentType]
app.task(max_retry=3)  # pyright: ignore[reportCallIssue]


async def tasks() -> None:
    await add.enqueue()  # pyright: ignore[reportCallIssue]
    await add.enqueue("1")  # pyright: ignore[reportArgumentType]
    await add.enqueue(1, c=2)  # pyright: ignore[reportCallIssue]
    await add.call(1, timeout=5)  # pyright: ignore[reportCallIssue]
    await add.call(1, b="2")  # pyright: ignore[reportArgumentType]
    add.entry(1, 2, 3)  # pyright: ignore[reportCallIssue]
    add.options(dela=5)  # pyright: ignore[reportCallIssue]
    add.options(delay="5")  # pyright: ignore[reportArgumentType]
    await add.options(delay=5).enqueue("1")  # pyright: ignore[reportArgumentType]
    await add.delay(1)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    await add.enqueue_many([1])  # pyright: ignore[reportArgumentType]
    text: str = await add.call(1)  # pyright: ignore[reportAssignmentType]
    number: int = add(1)  # pyright: ignore[reportAssignmentType]
    print(text, number)


async def queue() -> None:
    mail = app.queue("mail")
    await mail.enqueue(1, dela=5)  # pyright: ignore[reportCallIssue]
    await mail.enqueue(1, on_conflict="ignore")  # pyright: ignore[reportArgumentType]
    await mail.enqueue(1, headers={"a": 1})  # pyright: ignore[reportArgumentType]
    await mail.enqueue(1, window="1h")  # pyright: ignore[reportArgumentType]
    await mail.enqueue(1, cost=1.5)  # pyright: ignore[reportArgumentType]
    app.listen("q", print, id_by=5)  # pyright: ignore[reportArgumentType]
    await mail.find("faild")  # pyright: ignore[reportArgumentType]
    await mail.cancel("a", running="maybe")  # pyright: ignore[reportArgumentType]
    print((await mail.status("a")).state)  # pyright: ignore[reportOptionalMemberAccess]
    Entry(1, idd="a")  # pyright: ignore[reportCallIssue]
    Update(run_at="later")  # pyright: ignore[reportArgumentType]
    Limit(5)  # pyright: ignore[reportCallIssue]
    Limit(by="money")  # pyright: ignore[reportArgumentType]
    await mail.set_limit(5)  # pyright: ignore[reportArgumentType]
    await mail.set_limit(Limit(), group=5)  # pyright: ignore[reportArgumentType]
    Retry(pause="all")  # pyright: ignore[reportArgumentType]
    Signed("json")  # pyright: ignore[reportCallIssue]
    Encrypted("json", 5)  # pyright: ignore[reportArgumentType]
    Worker(app, capacity="10")  # pyright: ignore[reportArgumentType]
    Penstock(5)  # pyright: ignore[reportArgumentType]
    await mail.schedules.put("s", "@daily")  # pyright: ignore[reportArgumentType]
    await mail.schedules.put("s", Every(60), overlap="maybe")  # pyright: ignore[reportArgumentType]
    await mail.schedules.edit("s", jiter=3)  # pyright: ignore[reportCallIssue]
    app.schedule("@daily")  # pyright: ignore[reportArgumentType]


def contexts() -> None:
    with app:  # pyright: ignore[reportGeneralTypeIssues]
        pass
    with Worker(app):  # pyright: ignore[reportGeneralTypeIssues]
        pass


async def sync_contexts() -> None:
    async with sync.Penstock("memory:"):  # pyright: ignore[reportGeneralTypeIssues]
        pass
